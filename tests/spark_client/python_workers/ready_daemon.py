"""PySpark's daemon, which forks Python workers. It imports their modules once, before the fork.

A worker collects garbage after each task: `gc.freeze` excludes the objects of these modules. A worker also reads the
directories of all zip files on its path before each task: the daemon removes PySpark's, which is installed too.
"""

import gc
import importlib
import sys

sys.path[:] = [place for place in sys.path if not place.endswith(".zip")]
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
