"""Tests of the suite's plugins: selection, order and distribution of cases."""

import re

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.server  # each case runs pytest

OPTIONS = ["-q", *(f"-p{name}" for name in ("plugins.selection", "plugins.scheduling"))]
MARKS = "[pytest]\nmarkers =\n jvm\n server\n browser\n daily\n full\n"


GROUPED = {
    "fig": 'pytestmark = pytest.mark.xdist_group("dark")',
    "lime": "",
    "plum": 'jvm = pytest.mark.xdist_group\npytestmark = jvm("dark")',
}


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of two files. One of them starts a server."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    folder = pytester.mkdir("tests")
    (folder / "test_apple.py").write_text("def test_red(): pass\ndef test_green(): pass\n")
    (folder / "test_pear.py").write_text(
        "import pytest\n"
        "@pytest.mark.server\ndef test_yellow(): pass\n"
        "@pytest.mark.full\ndef test_brown(full): assert full\n"
        "def test_green(): pass\n"
    )
    pytester.makeini(MARKS)
    return pytester


def collected(suite: pytest.Pytester, *options: str) -> list[str]:
    """Return the cases that a run would run, in order."""
    lines = suite.runpytest(*OPTIONS, "--collect-only", *options).outlines
    return [line.removeprefix("tests/test_").replace(".py::test_", " ") for line in lines if "::" in line]


def test_a_full_run_has_all_cases_and_a_quick_run_no_servers(suite: pytest.Pytester) -> None:
    assert "pear brown" in collected(suite, "--full")
    assert collected(suite, "--quick") == ["apple red", "apple green", "pear green"]
    assert suite.runpytest(*OPTIONS, "--full").parseoutcomes() == {"passed": 5}


def test_a_quick_run_does_not_collect_files_that_start_servers(suite: pytest.Pytester) -> None:
    (suite.path / "tests" / "test_plum.py").write_text("pytestmark = pytest.mark.jvm  # not imported: a NameError\n")
    assert collected(suite, "--quick") == ["apple red", "apple green", "pear green"]


@pytest.mark.parametrize("marks", ["pytest.mark.daily", "[\n    pytest.mark.full,\n    pytest.mark.daily,\n]"])
def test_daily_cases_run_if_they_are_named(suite: pytest.Pytester, marks: str) -> None:
    (suite.path / "tests" / "test_plum.py").write_text(f"import pytest\npytestmark = {marks}\ndef test_blue(): pass\n")
    suite.makeini(MARKS + "testpaths = tests\n")
    others = ["pear yellow", "pear green", "apple red", "apple green"]
    assert sorted(collected(suite)) == sorted(others)
    assert "plum blue" in collected(suite, "--full")
    assert "plum blue" not in collected(suite, "--quick")
    if "full" not in marks:
        assert sorted(collected(suite, "--daily")) == sorted([*others, "plum blue"])
        assert collected(suite, "tests/test_plum.py") == ["plum blue"]


@pytest.mark.parametrize(("argument", "passed"), [("--maxfail=9", 4), ("tests", 5)])
def test_worker_processes_run_the_daily_cases_of_their_controller(
    suite: pytest.Pytester, argument: str, passed: int
) -> None:
    (suite.path / "tests" / "test_plum.py").write_text("import pytest\n@pytest.mark.daily\ndef test_blue(): pass\n")
    suite.makeini(MARKS + "testpaths = tests\n")
    run = suite.runpytest(*OPTIONS, "-pxdist", "-n1", "--dist=loadfile", argument)
    assert run.parseoutcomes()["passed"] == passed


def test_the_cases_of_a_file_and_the_files_of_a_group_run_in_one_process(suite: pytest.Pytester) -> None:
    for name in ("fig", "lime", "plum"):
        mark = GROUPED[name]
        file = suite.path / "tests" / f"test_{name}.py"
        file.write_text(f"import pytest\n{mark}\ndef test_one(): pass\ndef test_two(): pass\n")
    run = suite.runpytest(*OPTIONS, "-v", "-v", "-pxdist", "-n3", "--dist=loadfile", "--no-loadscope-reorder")
    ran = re.findall(r"\[(gw\d)\].* PASSED tests/test_(\w+)\.py", str(run.stdout))
    processes = {file: {process for process, other in ran if other == file} for _, file in ran}
    assert len(ran) == 10
    assert {len(each) for each in processes.values()} == {1}
    assert processes["fig"] == processes["plum"]
