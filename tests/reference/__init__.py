"""Model files and numbers of version 0.1.0: what later versions must load, and compute again."""
