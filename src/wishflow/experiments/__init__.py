"""Experiments: models side by side on data, declared by name."""
