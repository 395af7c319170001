"""Figures that tests of promises measure: their tests record them, and a report of pytest has them.

python -m studies.stress.figures            # writes studies/results/promises.json
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from wishflow.files.json import write_json_atomic

from ..paths import RESULTS, ROOT
from ..provenance import provenance

TESTS = ("tests/test_process.py", "tests/test_side_by_side.py", "tests/agreement/test_calibration_of_draws.py")


def measured(tests: tuple[str, ...] = TESTS) -> dict[str, str]:
    """What tests have recorded with `record_property`, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", "-q", *options, *tests]
        subprocess.run(command, cwd=ROOT, check=True)
        properties = ET.parse(report).getroot().iter("property")
        return {one.attrib["name"]: one.attrib["value"] for one in properties}


if __name__ == "__main__":
    write_json_atomic(RESULTS / "promises.json", {"figures": measured(), "provenance": provenance()})
