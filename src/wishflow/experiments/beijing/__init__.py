"""The Beijing series: the paper's figures and a rolling comparison; result files become tables, figures, a page."""
