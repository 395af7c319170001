"""Measurements in a process of their own, with no compilation cache but a given one: the first use after an import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def measured_alone(module: str, name: str, cache: str | None = None) -> Any:
    """What `python -m MODULE --one NAME` prints as its last line, JSON; `cache` is a folder for compiled programs."""
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    if cache is not None:
        environment |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-m", module, "--one", name]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    return json.loads(output.splitlines()[-1])
