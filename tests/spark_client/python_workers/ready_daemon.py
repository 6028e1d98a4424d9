"""PySpark's daemon, which forks Python workers. It imports their modules once, before the fork."""

import importlib

from pyspark import daemon

if __name__ == "__main__":
    for name in (
        "pandas",
        "pyarrow.compute",
        "tableside_spark.executor.lookup_task",
        "tableside_spark.executor.write_task",
    ):
        importlib.import_module(name)
    daemon.manager()
