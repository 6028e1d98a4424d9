"""The settings of a session that stores the state of its queries in a table."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PROVIDER = "tableside.state.TablesideStateStoreProvider"
PREFIX = "spark.tableside.state."
TABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
URL = re.compile(r"https?://[^/@?#\s]+(/[^?#\s]*)?", re.IGNORECASE)

BOUNDS: dict[str, tuple[float, float]] = {
    "timeout_s": (0.001, 86_400),
    "deadline_s": (0.001, 86_400),
    "memory_records_max": (1, 2**31 - 1),
    "memory_bytes_max": (1, 2**63 - 1),
    "disk_bytes_max": (0, 2**63 - 1),
    "chunk_bytes_max": (1 << 10, 760 << 10),
    "request_bytes_max": (1 << 10, 64 << 20),
    "in_flight_max": (1, 64),
    "deltas_max": (1, 5_000),
}
"""The valid range of each number, as in the provider.

Chunks in base64 and manifests stay below 1 MiB, the default limit of a value.
"""


class Options(TypedDict, total=False):
    """The options of the state store. The provider has defaults for all of them.

    Files are read on the driver and on every executor. The token is in a file or in the variable `TABLESIDE_TOKEN`,
    never in a setting.

    Attributes:
        token_file: A file with the bearer token.
        ca_file: PEM file of the authorities that may sign the service's certificate.
        certificate_file: PEM file of the client's certificate.
        key_file: PEM file of the certificate's key.
        memory: `"all"` keeps all values in memory. `"bounded"` limits them per store and partition, and fetches the
            others when needed. Keys are always in memory.
        memory_records_max: The maximum number of values in memory, with `memory="bounded"`.
        memory_bytes_max: The maximum size of values in memory, with `memory="bounded"`.
        disk_bytes_max: The maximum size of copies of other values on the executor's local disk, with
            `memory="bounded"`.
        timeout_s: The timeout of one attempt at a request, in seconds.
        deadline_s: The deadline of a call with all its attempts, in seconds.
        chunk_bytes_max: The maximum size of the data in one record.
        request_bytes_max: The maximum size of a request.
        in_flight_max: The maximum number of concurrent requests of one call.
        deltas_max: The maximum number of deltas before a commit writes a snapshot itself.
    """

    token_file: str
    ca_file: str
    certificate_file: str
    key_file: str
    memory: Literal["all", "bounded"]
    memory_records_max: int
    memory_bytes_max: int
    disk_bytes_max: int
    timeout_s: float
    deadline_s: float
    chunk_bytes_max: int
    request_bytes_max: int
    in_flight_max: int
    deltas_max: int


def settings(url: str, table: str, **options: Unpack[Options]) -> dict[str, str]:
    """Return the Spark settings of a session that stores its queries' state in a table, as for `spark-submit --conf`.

    Args:
        url: The address of the service.
        table: The name of the table.
        **options: See `Options`.

    Raises:
        ValueError: Arguments are not valid. The message lists all of them.
        JarNotFound: The installation does not contain the jar.
        PySparkVersionError: The installed PySpark is older than 4.1.
    """
    if find_spec("pyspark") is not None:  # `spark-submit` also takes settings from machines without it
        from tableside_spark.versions import require

        require("the state store")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if unknown := given.keys() - Options.__annotations__.keys():
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    if faults := _faults(url, table, given):
        raise ValueError("; ".join(faults))
    return {
        "spark.jars": jar_path(),
        "spark.sql.streaming.stateStore.providerClass": PROVIDER,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        **{f"{PREFIX}{name}": str(value) for name, value in {"url": url, "table": table, **given}.items()},
    }


def configure(
    builder: "SparkSession.Builder", url: str, table: str, **options: Unpack[Options]
) -> "SparkSession.Builder":
    """Add the settings to a session builder, so that new queries store their state in the table.

    The jar is added to the builder's other jars. It is loaded when the Spark context starts. A second session of a
    running context does not load it. Queries with an existing checkpoint keep their provider.

    The arguments and errors are as in `settings`.

    Returns:
        The builder.
    """
    chosen = settings(url, table, **options)
    present = str(builder._options.get("spark.jars") or "")  # noqa: SLF001 - a builder does not say what it was given
    jars = [jar for jar in present.split(",") if jar and jar != chosen["spark.jars"]]
    chosen["spark.jars"] = ",".join([*jars, chosen["spark.jars"]])
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder


def _faults(url: str, table: str, given: Mapping[str, Any]) -> list[str]:
    faults = []
    if not URL.fullmatch(url):
        faults.append("url is not http:// or https:// with a host, and without a user, a query and a fragment")
    if not TABLE.fullmatch(table):
        faults.append("table is not a letter or digit, then at most 127 of letters, digits, _ . -")
    named = [name for name in ("token_file", "ca_file", "certificate_file", "key_file") if name in given]
    faults += [f"{name} is empty" for name in named if not str(given[name]).strip()]
    if "key_file" in named and "certificate_file" not in named:
        faults.append("key_file requires certificate_file")
    if set(named) - {"token_file"} and not url.lower().startswith("https://"):
        faults.append("ca_file, certificate_file and key_file require an https:// address")
    others = [] if given.get("memory", "all") in ("all", "bounded") else ["memory is neither all nor bounded"]
    for name in BOUNDS.keys() & given.keys():
        (least, most), whole = BOUNDS[name], name.endswith("_max")
        fits = isinstance(given[name], int if whole else int | float) and not isinstance(given[name], bool)
        if not (fits and least <= given[name] <= most):
            others.append(f"{name} is not a {'whole number' if whole else 'number of seconds'} from {least} to {most}")
    return faults + sorted(others)


JAR = "tableside-state.jar"


class JarNotFound(FileNotFoundError):
    """The installation does not contain the jar of the state store."""


def jar_path() -> str:
    """Return the path of the jar, for `spark.jars`. Raises `JarNotFound`, with instructions, if there is none."""
    jar = Path(__file__).with_name(JAR)
    if not jar.is_file():
        raise JarNotFound(
            f"the jar of the state store is not in this installation ({jar}), because it was built without a JDK: "
            "install a released wheel, or run scripts/jar in a clone of the project and install from there"
        )
    return str(jar)
