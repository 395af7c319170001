"""The UCI regression suite of the paper: cells are trained and scored, result files become tables, figures, a page."""
