"""Speed on an accelerator, beside what the machine can do at best: `python -m benchmarks.gpu`."""
