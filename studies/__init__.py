"""The paper's experiments, benchmarks and searches for settings; not part of the package."""
