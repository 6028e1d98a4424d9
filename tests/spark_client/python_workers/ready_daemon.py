"""PySpark's daemon, which forks Python workers: it imports once what each of them would import again."""

import importlib

from pyspark import daemon

if __name__ == "__main__":
    for name in ("pandas", "pyarrow.compute", "tableside_spark.lookup", "tableside_spark.sending"):
        importlib.import_module(name)
    daemon.manager()
