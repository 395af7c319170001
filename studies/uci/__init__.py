"""The UCI regression tables."""
