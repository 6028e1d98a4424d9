"""What Java says of itself: memory, garbage, the processes behind it. Knows nothing of queries."""

import os
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

OPTIONS = " ".join(
    (
        "-XX:+ExitOnOutOfMemoryError",
        "--add-opens=java.management/sun.management=ALL-UNNAMED",
        "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    )
)
"""End where memory does, rather than crawl; and let what Java says of itself be asked from Python."""


def jvm(spark: SparkSession) -> Any:
    """Return what reaches the classes of the Java process behind a session."""
    return spark._jvm  # noqa: SLF001 - there is no other way to them


class Java:
    """The Java process behind a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm(spark)
        self._beans = self._jvm.java.lang.management.ManagementFactory
        self.pid = int(self._jvm.java.lang.ProcessHandle.current().pid())

    def live_bytes(self) -> int:
        """Return what of the heap is in use when all garbage has gone."""
        for _ in range(2):
            self._jvm.java.lang.System.gc()
            time.sleep(0.2)
        return int(self._beans.getMemoryMXBean().getHeapMemoryUsage().getUsed())

    def forget_peak(self) -> None:
        """Measure the peak from now on."""
        for pool in self._heap():
            pool.resetPeakUsage()

    def peak_bytes(self) -> int:
        """Return how much of the heap was in use at most, garbage with it: at most the sum of its pools' peaks."""
        heap_bytes = int(self._beans.getMemoryMXBean().getHeapMemoryUsage().getMax())
        return min(heap_bytes, sum(int(pool.getPeakUsage().getUsed()) for pool in self._heap()))

    def collecting_s(self) -> float:
        """Return the seconds that garbage collections have taken so far."""
        return sum(max(0, int(bean.getCollectionTime())) for bean in self._beans.getGarbageCollectorMXBeans()) / 1e3

    def _heap(self) -> list[Any]:
        pools = self._beans.getMemoryPoolMXBeans()
        return [pool for pool in pools if pool.getType().toString() == "Heap memory"]


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU that a process has taken so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def resident_peak_bytes(pid: int) -> int:
    """Return how much memory a process had at most, native memory with it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def busy_s() -> float:
    """Return the seconds that the cores of this machine were busy so far, whoever kept them so."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]
