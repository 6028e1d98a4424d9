"""A Spark cluster of two hosts inside the driver's JVM, since speculation needs two hosts.

`local-cluster[2,1,1024]` differs only in the names of its workers, which all have the same host, so that it never
speculates. The executors are separate processes in the driver's kernel session.
"""

from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

MASTER = "127.0.0.1"
WORKERS = ("127.0.0.2", "127.0.0.3")
CORES, MEMORY_MB = 1, 1024
ANY_PORT = 0


def two_hosts_session(settings: dict[str, str], directory: Path) -> SparkSession:
    """Start the JVM, the cluster in it, and a session on that. Executors have their files in the directory."""
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)
    url = _started(SparkContext._jvm, settings, directory)
    builder = SparkSession.builder.master(url)
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    return builder.getOrCreate()


def _started(jvm: Any, settings: dict[str, str], directory: Path) -> str:
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, setting in settings.items():
        conf.set(name, setting)
    deploy = jvm.org.apache.spark.deploy
    port = deploy.master.Master.startRpcEnvAndEndpoint(MASTER, ANY_PORT, ANY_PORT, conf)._1().address().port()
    url = f"spark://{MASTER}:{port}"
    masters = SparkContext._gateway.new_array(jvm.java.lang.String, 1)  # type: ignore[union-attr]
    masters[0] = url
    for number, host in enumerate(WORKERS):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host,
            ANY_PORT,
            ANY_PORT,
            CORES,
            MEMORY_MB,
            masters,
            str(directory),
            jvm.scala.Option.apply(number),
            conf,
            jvm.scala.Option.empty(),
        )
    return url
