"""Beijing air quality."""
