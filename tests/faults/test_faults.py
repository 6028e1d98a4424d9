"""The patches apply to the product and name tests that exist. `python -m tests.faults` runs the tests against them."""

import re
import subprocess

from faults.patches import ROOT, faults

INHERITED = sorted((ROOT / "tests" / "contract").glob("*.py"))
"""The modules whose cases test classes inherit."""


def test_every_fault_applies_and_changes_one_line_of_the_product() -> None:
    for fault in faults():
        done = subprocess.run(["git", "apply", "--check", fault.file], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{fault.name}: {done.stderr}"
        [changed] = fault.changed_files
        assert changed.startswith(("service/", "spark_client/", "helm/")), fault.name
        assert fault.changed_lines == (1, 1), fault.name


def test_every_fault_names_tests_that_exist() -> None:
    for fault in faults():
        assert fault.tests, fault.name
        for test in fault.tests:
            path, *names = test.partition("[")[0].split("::")
            assert (ROOT / path).exists(), f"{fault.name}: {path}"
            text = "\n".join(file.read_text() for file in (ROOT / path, *INHERITED)) if names else ""
            for name in names:
                assert re.search(rf"^ *(class|def|async def) {name}\b", text, re.MULTILINE), f"{fault.name}: {test}"
