"""The runner of Java cases: results, and cases that fail or do not end."""

import pytest

from spark_client.state.java import CaseFailed, Java, names

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]


def test_a_case_returns_its_result(java: Java) -> None:
    assert java.run("CasesCases", "echo", text="ü", numbers=[1, 2.5]) == {"text": "ü", "numbers": [1, 2.5]}
    assert java.run("CasesCases", "nothing") is None


def test_after_an_exception_the_next_case_runs(java: Java) -> None:
    with pytest.raises(CaseFailed, match="IllegalStateException: as asked"):
        java.run("CasesCases", "thrower")
    with pytest.raises(CaseFailed, match="NoSuchMethodException"):
        java.run("CasesCases", "noSuchCase")
    assert java.run("CasesCases", "nothing") is None


def test_after_a_timeout_the_next_case_runs(java: Java) -> None:
    with pytest.raises(CaseFailed, match=r"sleeper did not end within 0\.5 s"):
        java.run("CasesCases", "sleeper", timeout_s=0.5)
    assert java.run("CasesCases", "nothing") is None


def test_after_an_exit_of_the_process_the_next_case_runs(java: Java) -> None:
    with pytest.raises(CaseFailed, match="Java has ended with 3"):
        java.run("CasesCases", "ender")
    assert java.run("CasesCases", "nothing") is None


def test_assertions_of_java_are_on(java: Java) -> None:
    with pytest.raises(CaseFailed, match="AssertionError"):
        java.run("CasesCases", "asserter")


def test_the_cases_of_a_class_are_listed_without_java() -> None:
    assert names("CasesCases") == ["echo", "nothing", "thrower", "sleeper", "ender", "asserter"]
