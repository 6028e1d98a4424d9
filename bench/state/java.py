"""Memory, garbage collection and CPU time of a Java process."""

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
"""Exit when memory runs out instead of slowing down, and open Java's management beans to Python."""


def jvm(spark: SparkSession) -> Any:
    """Return the gateway to the classes of a session's Java process."""
    return spark._jvm  # noqa: SLF001 - PySpark has no public access to it


class Java:
    """The Java process behind a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm(spark)
        self._beans = self._jvm.java.lang.management.ManagementFactory
        self.pid = int(self._jvm.java.lang.ProcessHandle.current().pid())

    def live_bytes(self) -> int:
        """Return the used heap after a full garbage collection."""
        for _ in range(2):
            self._jvm.java.lang.System.gc()
            time.sleep(0.2)
        return int(self._beans.getMemoryMXBean().getHeapMemoryUsage().getUsed())

    def forget_peak(self) -> None:
        """Reset the peak of the heap."""
        for pool in self._heap():
            pool.resetPeakUsage()

    def peak_bytes(self) -> int:
        """Return the peak of the used heap, including garbage. It is an upper bound: the sum of the pools' peaks."""
        heap_bytes = int(self._beans.getMemoryMXBean().getHeapMemoryUsage().getMax())
        return min(heap_bytes, sum(int(pool.getPeakUsage().getUsed()) for pool in self._heap()))

    def collecting_s(self) -> float:
        """Return the seconds of garbage collection so far."""
        return sum(max(0, int(bean.getCollectionTime())) for bean in self._beans.getGarbageCollectorMXBeans()) / 1e3

    def _heap(self) -> list[Any]:
        pools = self._beans.getMemoryPoolMXBeans()
        return [pool for pool in pools if pool.getType().toString() == "Heap memory"]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def resident_peak_bytes(pid: int) -> int:
    """Return the peak resident size of a process, including native memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def busy_s() -> float:
    """Return the busy seconds of this machine's cores so far, for all processes."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]
