"""`python -m wishflow.cli` is the command `wishflow`."""

from . import main

if __name__ == "__main__":
    main()
