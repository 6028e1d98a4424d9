"""Run a query in a separate Spark driver process: `python -m bench.state.driver TASK ANSWER`, both JSON files.

A small query with the same plan and the same kind of state store runs first, so that class loading is not measured.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo.session import LOGGING, session
from pyspark.sql import SparkSession

from . import query
from .java import OPTIONS, Java, busy_s, cpu_s, load, resident_peak_bytes
from .task import PARTITIONS, Task
from .ways import STATE_STORE

CORES = "local[2]"


def main(task_file: Path, answer_file: Path) -> None:
    """Run the task of the first file, and write its measurements to the second."""
    task = Task.read(task_file)
    with session(Path(task.folder), CORES, _settings(task)) as spark:
        _warm(spark, task)
        answer = _again(spark, task) if task.again else _first(spark, task)
    answer_file.write_text(json.dumps(answer))


def _settings(task: Task) -> dict[str, str]:
    return {
        "spark.driver.memory": f"{task.heap_mib}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {OPTIONS}",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        f"{STATE_STORE}.maintenanceInterval": f"{round(task.maintenance_s * 1e3)}ms",
        "spark.sql.streaming.numRecentProgressUpdates": str(task.batches + 100),
        **task.settings,
    }


def _warm(spark: SparkSession, task: Task) -> None:
    warming = query.start(spark, task.warm_input, f"{task.checkpoint}-warm-{task.name}", payload=task.payload)
    query.finish(warming)
    warming.stop()


def _first(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Run all micro-batches, and measure memory before the query stops and releases its state."""
    java = Java(spark)
    before_bytes = java.live_bytes()
    java.forget_peak()
    before, running = Spent.now(java, task), query.start(spark, task.input, task.checkpoint, payload=task.payload)
    progress = query.finish(running)
    spent = Spent.now(java, task).since(before)
    peak_bytes = java.peak_bytes()
    answer = {
        "progress": progress,
        "spent": spent,
        "heap_peak_bytes": peak_bytes,
        "heap_live_bytes": java.live_bytes(),
        "heap_before_bytes": before_bytes,
        "resident_bytes": resident_peak_bytes(java.pid),
        "service_resident_bytes": resident_peak_bytes(task.service_pid) if task.service_pid else 0,
        "load": load(),
    }
    running.stop()
    return answer


def _again(spark: SparkSession, task: Task) -> dict[str, Any]:
    """Restart the query for small micro-batches (the first loads the state), then load and read the state directly."""
    running = query.start(spark, task.input, task.checkpoint, payload=task.payload)
    progress = query.finish(running)
    running.stop()
    loads_s = query.loads_s(spark, task.checkpoint)
    began = time.perf_counter()
    totals = query.totals(spark, task.checkpoint)
    return {"progress": progress, "loads_s": loads_s, "read_s": time.perf_counter() - began, "totals": totals}


@dataclass(frozen=True)
class Spent:
    """Seconds so far: wall clock, CPU by process, busy time of all cores, garbage collection."""

    wall: float
    java: float
    python: float
    service: float
    machine: float
    collecting: float

    @classmethod
    def now(cls, java: Java, task: Task) -> "Spent":
        """Read all clocks."""
        service = cpu_s(task.service_pid) if task.service_pid else 0.0
        return cls(time.perf_counter(), cpu_s(java.pid), time.process_time(), service, busy_s(), java.collecting_s())

    def since(self, before: "Spent") -> dict[str, float]:
        """Return the seconds since `before`, by name."""
        return {name: getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
