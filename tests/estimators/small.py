"""Settings with which a fit takes well under a second once it is compiled."""

import wishflow as wf

SMALL_GP = {"n_inducing": 10, "max_iter": 5}
SMALL_CLASSES = {**SMALL_GP, "n_steps": 3, "n_predict_samples": 64}
# The flow as it ends: whether it is better than a sparse GP is tested elsewhere.
SMALL = {**SMALL_CLASSES, "validation_fraction": 0}
ESTIMATORS = [wf.SparseGPRegressor(**SMALL_GP), wf.FlowRegressor(**SMALL), wf.FlowClassifier(**SMALL_CLASSES)]
