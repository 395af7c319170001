"""Linear algebra, constrained parameters, random numbers, scaling, padding; devices and precision."""
