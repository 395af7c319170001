"""Figures of promises that their tests measure: they record them, and a report of pytest has them.

python -m studies.benchmarks.promises            # writes studies/results/promises.json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from wishflow.files.json import write_json_atomic

from ..paths import RESULTS, ROOT
from ..provenance import provenance

TESTS = ("tests/test_process.py", "tests/test_side_by_side.py", "tests/agreement/test_calibration_of_draws.py")


def measured(tests: Sequence[str]) -> dict[str, str]:
    """What tests have recorded with `record_property`, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}"]
        subprocess.run([sys.executable, "-m", "pytest", "-q", *options, *tests], cwd=ROOT, check=True)
        properties = ET.parse(report).getroot().iter("property")
        return {one.attrib["name"]: one.attrib["value"] for one in properties}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="files of tests")
    parser.add_argument("--output", type=Path, default=RESULTS / "promises.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    write_json_atomic(options.output, {"figures": measured(options.tests), "provenance": provenance()})


if __name__ == "__main__":
    main()
