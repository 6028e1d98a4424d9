"""The program of docs/multicast.md runs unchanged, except for the broker's address, and its records arrive in Kafka."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from scripts.bootstrap import ROOT
from spark_client.kafka_streams import fill, held, stream_of
from support.kafka_topics import create_topic
from tableside_spark import default_partition

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PAGE = (ROOT / "docs" / "multicast.md").read_text(encoding="utf-8")
ALERTS = [("EU", "storm"), ("US", "fog"), ("all", "strike"), (None, "noise"), ("Asia", "heat"), ("EU", "ice")]


def test_the_program_sends_each_alert_to_the_documented_partitions(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    source, target = create_topic(kafka_address, 1), create_topic(kafka_address, 12, name="alerts")
    fill(kafka_address, source, ALERTS)
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:2])
    for said, here in {"broker:9092": kafka_address, "/checkpoints/alerts": str(tmp_path)}.items():
        assert program.count(f'"{said}"') == 1
        program = program.replace(said, here)
    names: dict[str, Any] = {"__name__": "__main__", "alerts": stream_of(spark, kafka_address, source)}
    exec(program, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    copies = [
        *((number, b"EU", value) for number in (0, 3) for value in (b"storm", b"ice")),
        (1, b"US", b"fog"),
        *((number, b"all", b"strike") for number in range(12)),
        (default_partition("Asia", 12), b"Asia", b"heat"),
    ]
    assert held(kafka_address, target) == Counter(copies)
