"""One process of a job: `python -m wishflow.cli.worker script.py …` joins the others and runs the script.

`wishflow launch` starts it. Under SLURM or Open MPI it can be started as it is (`srun python -m wishflow.cli.worker
script.py`): JAX then finds out the place of each process by itself.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback

from .launching import PLACE

HEARTBEAT_SECONDS = 30


def main(arguments: list[str]) -> None:
    """Join the job and run the script with its arguments.

    After an error the process ends at once: to leave in order it would wait for the others, and they for it.
    """
    import jax

    place = json.loads(os.environ.get(PLACE, "{}"))
    jax.distributed.initialize(**{"heartbeat_timeout_seconds": HEARTBEAT_SECONDS, **place})
    sys.argv = list(arguments)
    sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as ended:
        _leave(ended.code)
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, jax.errors.JaxRuntimeError):
            print("wishflow: if a connection was lost, another process has died; its host says why.", file=sys.stderr)
        _leave(1)


def _leave(code: str | int | None) -> None:
    """As `sys.exit`; without waiting for other processes where something went wrong."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
