"""SDEs with Wishart diffusions, learnt by variational inference."""
