"""Stress: kills, hostile files and odd inputs in large numbers; `python -m studies.stress`, or `make stress`."""
