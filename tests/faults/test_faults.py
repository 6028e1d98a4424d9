"""The faults fit the product and the tests as they are; whether the tests catch them is for `python -m tests.faults`."""

import re
import subprocess

from faults.patches import ROOT, faults


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
            path, _, case = test.partition("::")
            assert (ROOT / path).exists(), f"{fault.name}: {path}"
            function = case.partition("[")[0]
            assert not case or re.search(rf"^(async )?def {function}\(", (ROOT / path).read_text(), re.MULTILINE), test
