"""Speed of training steps on the CPU, beside the libraries that do the same work: `python -m benchmarks.speed`."""
