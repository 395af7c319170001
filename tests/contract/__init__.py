"""What users can do, through the public API alone."""
