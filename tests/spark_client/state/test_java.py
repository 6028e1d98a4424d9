"""The runner of Java cases: results, and cases that fail or do not end."""

import pytest

from spark_client.state.java import CaseFailed, Java, names

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]


def test_a_case_answers_with_what_it_returns(java: Java) -> None:
    assert java.run("CasesCases", "echo", text="ü", numbers=[1, 2.5]) == {"text": "ü", "numbers": [1, 2.5]}
    assert java.run("CasesCases", "nothing") is None


def test_a_case_that_throws_has_failed_and_the_next_one_runs(java: Java) -> None:
    with pytest.raises(CaseFailed, match="IllegalStateException: as asked"):
        java.run("CasesCases", "thrower")
    with pytest.raises(CaseFailed, match="NoSuchMethodException"):
        java.run("CasesCases", "noSuchCase")
    assert java.run("CasesCases", "nothing") is None


def test_a_case_that_does_not_end_has_failed_and_the_next_one_runs(java: Java) -> None:
    with pytest.raises(CaseFailed, match=r"sleeper did not end within 0\.5 s"):
        java.run("CasesCases", "sleeper", timeout_s=0.5)
    assert java.run("CasesCases", "nothing") is None


def test_a_case_that_ends_the_process_has_failed_and_the_next_one_runs(java: Java) -> None:
    with pytest.raises(CaseFailed, match="Java has ended with 3"):
        java.run("CasesCases", "ender")
    assert java.run("CasesCases", "nothing") is None


def test_assertions_of_java_are_on(java: Java) -> None:
    with pytest.raises(CaseFailed, match="AssertionError"):
        java.run("CasesCases", "asserter")


def test_the_cases_of_a_class_are_known_without_java() -> None:
    assert names("CasesCases") == ["echo", "nothing", "thrower", "sleeper", "ender", "asserter"]
