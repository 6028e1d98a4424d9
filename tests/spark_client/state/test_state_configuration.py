"""The session configuration that keeps the state of queries in a table."""

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scripts.state_jar import ensure_jar
from servers.jdk import ensure_javac
from tableside_spark.state import configure, jar_path, settings

URL = "https://tables.example:8443/behind"
CHOSEN = "spark.sql.streaming.stateStore"


@pytest.fixture(scope="module", autouse=True)
def jar() -> Path:
    """The jar, built if necessary."""
    return ensure_jar(ensure_javac())


def test_the_jar_contains_the_provider_of_the_settings(jar: Path) -> None:
    assert jar_path() == str(jar)
    named = settings(URL, "state")[f"{CHOSEN}.providerClass"]
    with zipfile.ZipFile(jar_path()) as archive:
        assert f"{named.replace('.', '/')}.class" in archive.namelist()


def test_settings_have_the_form_of_spark_submit() -> None:
    told = settings(URL, "state", token_file="/t", ca_file="/ca", memory="bounded", deadline_s=5.5, in_flight_max=2)
    assert all(name.startswith("spark.") for name in told)
    assert told == {
        "spark.jars": jar_path(),
        f"{CHOSEN}.providerClass": "tableside.state.TablesideStateStoreProvider",
        f"{CHOSEN}.checkpointFormatVersion": "2",
        "spark.tableside.state.url": URL,
        "spark.tableside.state.table": "state",
        "spark.tableside.state.token_file": "/t",
        "spark.tableside.state.ca_file": "/ca",
        "spark.tableside.state.memory": "bounded",
        "spark.tableside.state.deadline_s": "5.5",
        "spark.tableside.state.in_flight_max": "2",
    }


def test_a_builder_keeps_the_jars_that_it_has() -> None:
    builder = SparkSession.Builder().config("spark.jars", "/a.jar,/b.jar")
    assert configure(configure(builder, URL, "other"), URL, "state") is builder
    assert builder._options["spark.jars"] == f"/a.jar,/b.jar,{jar_path()}"
    assert builder._options["spark.tableside.state.table"] == "state"


ADDRESS = "url is not http:// or https:// with a host, and without a user, a query and a fragment"


@pytest.mark.parametrize(
    ("url", "table", "options", "faults"),
    [
        ("http://user:secret@h", "t", {}, [ADDRESS]),
        (URL, "-t", {}, ["table is not a letter or digit, then at most 127 of letters, digits, _ . -"]),
        ("http://h", "t", {"ca_file": "/ca"}, ["ca_file, certificate_file and key_file require an https:// address"]),
        (URL, "t", {"key_file": "/key"}, ["key_file requires certificate_file"]),
        (URL, "t", {"token_file": " "}, ["token_file is empty"]),
        (URL, "t", {"timeout_s": float("nan")}, ["timeout_s is not a number of seconds from 0.001 to 86400"]),
        (URL, "t", {"chunk_bytes_max": 1 << 20}, ["chunk_bytes_max is not a whole number from 1024 to 778240"]),
        ("x", "t", {"memory": 1, "in_flight_max": 1.5}, [ADDRESS, "in_flight_max is not", "memory is neither"]),
    ],
)
def test_all_faults_are_listed_without_secrets(
    url: str, table: str, options: dict[str, Any], faults: list[str]
) -> None:
    with pytest.raises(ValueError, match=re.escape(faults[0])) as caught:
        settings(url, table, **options)
    said = str(caught.value).split("; ")
    assert len(said) == len(faults)
    assert all(one.startswith(fault) for one, fault in zip(said, faults, strict=True))
    assert "secret" not in str(caught.value)
    with pytest.raises(TypeError, match="there is no option token"):
        settings(URL, "t", token="secret")  # type: ignore[call-arg]
