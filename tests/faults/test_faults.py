"""The faults fit the product and the tests as they are. Whether the tests catch them, `python -m tests.faults` says."""

import re
import subprocess

from faults.patches import ROOT, faults

INHERITED = "tests/store_contract.py"
"""What has the cases of many classes of tests."""


def test_every_fault_is_one_line_of_the_product_as_it_is() -> None:
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
            text = "\n".join((ROOT / file).read_text() for file in (path, INHERITED)) if names else ""
            for name in names:
                assert re.search(rf"^ *(class|def|async def) {name}\b", text, re.MULTILINE), f"{fault.name}: {test}"
