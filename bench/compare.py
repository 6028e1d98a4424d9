"""Single requests and batches of 1,000: the service, and Webdis and redis-py on the same Redis.

The service runs with one worker, and for single requests also with two. It also reads and writes embedded RocksDB
tables, compared with redis-py on Redis. All variants read and write as many records of the same size, and all puts of
one case set the same time to live. Dapr is not measured, because its runtime is in no package registry.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path

from servers.redis import redis
from servers.webdis import webdis

from . import records
from .cases import NAMED, OP_COLUMN, PLAIN, REALISTIC, REALISTIC_LARGE, Case, Form, Op, batch, puts
from .drivers import Direct, RedisPy, redis_name
from .figure import write as draw
from .load import Request, requests_per_second, send_all, small_requests_per_second
from .report import Result
from .services import serving, tables_of
from .turns import Comparison, Rate, measured

RECORDS = 10_000
BATCH = 1000
SINGLE_AT_ONCE = 32
BATCHES_AT_ONCE = 4
INVALID_MAX = 3
WORKERS = 2
SERVICE, WEBDIS, DRIVER = "Tableside", "webdis", "redis-py"
SHARED_SERVICE = f"Tableside, {WORKERS} workers"
FIGURE_TITLE = "Requests and records per second of Tableside and of others, as ratios"
KEYS = [records.key(index) for index in range(RECORDS)]
BATCHES = [KEYS[start : start + BATCH] for start in range(0, RECORDS, BATCH)]

SINGLE = """
math.randomseed(os.time())
wrk.headers["Content-Type"] = "application/json"
request = function()
  return wrk.format("%s", string.format("%sN%%06d", math.random(0, %d)), nil, %s)
end
"""


@dataclass(frozen=True)
class Compared:
    """Batches on a service that are compared with redis-py on Redis, and the lowest acceptable ratio."""

    op: Op
    case: Case
    ratio_min: float
    form: Form = "Arrow"
    store: str = "Redis"

    def __str__(self) -> str:
        store, form = self.store.removeprefix("Redis"), self.form.removeprefix("Arrow")
        return " ".join(filter(None, (store, "batch", self.op, form))) + f": {self.case.name}"


COMPARED = (
    Compared("get", PLAIN, 0.7),
    Compared("get", REALISTIC, 0.7),
    Compared("get", REALISTIC_LARGE, 0.7),
    Compared("get", OP_COLUMN, 0.7),
    Compared("get", PLAIN, 0.4, form="JSON"),
    Compared("put", PLAIN, 1.2),
    Compared("put", REALISTIC, 1.2),
    Compared("put", REALISTIC_LARGE, 1.2),
    Compared("update", PLAIN, 1.0),
    Compared("update", NAMED, 1.0),
    Compared("get", PLAIN, 0.6, store="RocksDB"),
    Compared("get", REALISTIC, 0.6, store="RocksDB"),
    Compared("put", PLAIN, 1.0, store="RocksDB"),
    Compared("put", REALISTIC, 1.0, store="RocksDB"),
)
CASES = {case.table: case for case in (each.case for each in COMPARED)}.values()


def run(seconds: float, rounds: int, figure: Path | None = None) -> list[Result]:
    """Measure all variants in turn, return the medians, and draw the service's ratios into the file `figure`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(redis(folder))
        other = stack.enter_context(webdis(folder, url))
        direct = stack.enter_context(Direct({DRIVER: RedisPy}, url))
        services = {
            "Redis": {
                SERVICE: stack.enter_context(_service(folder / "one", url)),
                SHARED_SERVICE: stack.enter_context(_service(folder / "shared", url, workers=WORKERS)),
            },
            "RocksDB": {SERVICE: stack.enter_context(_service(folder / "embedded", ""))},
        }
        for case in CASES:
            direct.fill(BATCHES, case)
        batches = [_batches(each, services[each.store][SERVICE], other, direct, seconds) for each in COMPARED]
        results = measured([*_singles(services["Redis"], other, seconds), *batches], rounds)
    if figure is not None:
        draw(results, FIGURE_TITLE, (SERVICE, SHARED_SERVICE), figure)
    return results


@contextmanager
def _service(folder: Path, redis_url: str, workers: int = 1) -> Iterator[str]:
    """Run a service on Redis, or else on RocksDB, with the records of all cases, and yield its URL."""
    store = {"kind": "redis", "url": redis_url} if redis_url else {"kind": "rocksdb", "path": str(folder / "records")}
    with serving(folder, store, tables_of(CASES), workers=workers) as service:
        for case in CASES:
            send_all(service.url, puts(RECORDS, case.table, case))
        yield service.url


def _singles(services: Mapping[str, str], other: str, seconds: float) -> Iterator[Comparison]:
    path = f"/v1/tables/{PLAIN.table}/records/"
    reads = {name: _single(url, seconds, "GET", path) for name, url in services.items()}
    of_webdis = _single(other, seconds, "GET", f"/GET/{redis_name('', PLAIN)}")
    yield _compared("single GET", "requests", {WEBDIS: of_webdis}, reads, 0.35)
    for name, url in services.items():
        patch = _single(url, seconds, "PATCH", path, '\'{"update":{"$inc":{"seats":1}}}\'')
        title = "single PATCH" if name == SERVICE else f"single PATCH, {WORKERS} workers"
        yield _compared(title, "requests", {f"{name}: GET": reads[name]}, {name: patch}, 0.8)


def _batches(each: Compared, url: str, other: str, direct: Direct, seconds: float) -> Comparison:
    driver = direct.rates(each.op, BATCHES, each.case)[DRIVER]
    others: dict[str, Rate] = {DRIVER: partial(driver, BATCHES_AT_ONCE, seconds)}
    if str(each) == str(COMPARED[0]):
        paths = ["/".join(["MGET", *(redis_name(key, each.case) for key in keys)]) for keys in BATCHES]
        mgets = [Request("POST", "/", path.encode()) for path in paths]
        others[WEBDIS] = _repeated(partial(_rate, other, mgets, seconds))
    requests = [batch(each.op, keys, each.case.table, each.case, each.form) for keys in BATCHES]
    return _compared(str(each), "records", others, {SERVICE: partial(_rate, url, requests, seconds)}, each.ratio_min)


def _compared(
    title: str, unit: str, others: Mapping[str, Rate], ours: Mapping[str, Rate], ratio_min: float
) -> Comparison:
    return Comparison(title, unit, {**others, **ours}, dict.fromkeys(ours, ratio_min))


def _single(url: str, seconds: float, method: str, path: str, body: str = "nil") -> Rate:
    script = SINGLE % (method, path, RECORDS - 1, body)
    return partial(small_requests_per_second, url, script, connections=SINGLE_AT_ONCE, seconds=seconds)


def _rate(url: str, requests: Sequence[Request], seconds: float) -> float:
    return BATCH * requests_per_second(url, requests, connections=BATCHES_AT_ONCE, seconds=seconds)


def _repeated(rate: Rate) -> Rate:
    """Measure again after an invalid response: Webdis sometimes sends a large one without its head."""

    def measured() -> float:
        for _ in range(INVALID_MAX):
            with suppress(HTTPException):
                return rate()
        return rate()

    return measured
