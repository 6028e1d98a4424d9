"""Options for JVMs that run Spark for seconds or minutes.

Most of the start of such a JVM is loading Spark's classes. With an archive of loaded and verified classes (class data
sharing), a start needs about 60 % of the processor time. A JVM ignores an archive of another Java or of other jars.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from servers.install import CACHE, ensure_folder
from servers.jdk import ensure_javac

JOB = Path(__file__).with_name("quick_start_job.py")
FOLDER = "spark-classes"
ARCHIVE = CACHE / FOLDER / "classes.jsa"
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
COMPILATION = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""The better compiler does not pay off in a JVM that runs for a minute."""

COLLECTION = "-XX:+UseSerialGC -XX:NewRatio=1 -XX:MetaspaceSize=300m"
"""A young generation, and room for classes, that are large enough for few collections."""

QUICK_START = f"{COMPILATION} {COLLECTION} -XX:SharedArchiveFile={ARCHIVE} {QUIET}"
SUBMIT_ARGUMENTS = f"--driver-java-options '{QUICK_START}' pyspark-shell"
"""The value of PYSPARK_SUBMIT_ARGS for programs that start Spark with their own settings."""

JOB_MAX_S = 300.0


def ensure_archive() -> None:
    """Run a small job that leaves the archive if it is missing or out of date (20 s). Older PySparks have none."""
    spark = Path(pyspark.__file__).parent
    if not spark.is_relative_to(CACHE):
        java = ensure_javac().resolve().parent.parent.glob("release")
        ensure_folder(FOLDER, (JOB, spark / "version.py", *java), _fill)


def _fill(folder: Path) -> None:
    options = f"{COMPILATION} {COLLECTION} -XX:ArchiveClassesAtExit={folder / ARCHIVE.name} {QUIET}"
    command = [sys.executable, str(JOB), options, str(folder / "work")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=JOB_MAX_S)
    assert done.returncode == 0, done.stdout + done.stderr
