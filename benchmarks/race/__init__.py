"""Seconds to a fixed test score, from the first call to a model that reaches it."""
