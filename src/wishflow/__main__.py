"""`python -m wishflow` is the command `wishflow`."""

from .cli import main

main()
