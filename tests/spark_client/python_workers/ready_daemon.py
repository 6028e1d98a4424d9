"""PySpark's daemon, which forks Python workers. It imports their modules once, before the fork.

A worker collects garbage after each task: `gc.freeze` excludes the objects of these modules. A worker also reads the
directories of all zip files on its path before each task: PySpark's is replaced by the folder where it is installed.
"""

import gc
import importlib
import sys

INSTALLED = "/pyspark/python/lib/"
sys.path[:] = [place.partition(INSTALLED)[0] if place.endswith(".zip") else place for place in sys.path]
sys.path_importer_cache.clear()

from pyspark import daemon  # noqa: E402

if __name__ == "__main__":
    for name in (
        "pandas",
        "pyarrow.compute",
        "tableside_spark.executor.lookup_task",
        "tableside_spark.executor.write_task",
    ):
        importlib.import_module(name)
    gc.freeze()
    daemon.manager()
