"""The largest requests of each kind within the limits, by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from hostile.costs import JSON, WAIT_S, Sent
from hostile.json_texts import (
    DEEP,
    FAULTY,
    INTEGERS,
    MEMBERS,
    SMALL_UPDATES,
    UPDATES,
    VALUES,
    Shape,
    filled,
    repeated,
    within,
)
from tableside.core.values import ELEMENTS_MAX
from tableside.http.endpoints.scans import PAGE_RECORDS_MAX, SPLITS_MAX
from tableside.http.wire.projections import FIELDS_MAX
from tableside.server.request_parser import HEAD_BYTES_MAX, HEADERS_MAX

BODY_BYTES = 16 * 2**20
OPERATIONS = 10_000
OPERATION_BYTES = (BODY_BYTES - 100) // OPERATIONS - 1
"""The size of an operation in a full batch with the maximum number of operations."""

MERGE = {**JSON, "Content-Type": "application/merge-patch+json"}
RETURNED = {**JSON, "Prefer": f"wait={WAIT_S}, return=representation"}

MANY = 16
"""The number of large records of one kind."""

LARGE = tuple(f"large-{number}" for number in range(MANY))
CROWD, GONE = "crowd", "gone"
"""Instead of a key: many small records, and many that have expired."""


@dataclass(frozen=True)
class Table:
    """A table, and the maximum size of a value in its store."""

    name: str
    value_bytes: int

    @property
    def path(self) -> str:
        """The path of its description."""
        return f"/v1/tables/{self.name}"

    def record(self, key: str) -> str:
        """Return the path of a record."""
        return f"{self.path}/records/{quote(key)}"


@dataclass(frozen=True)
class Input:
    """A request by the name of its shape, and the keys of the records that it needs."""

    name: str
    make: Callable[[Table], Sent]
    needs: tuple[str, ...] = ()


RECORDS: Mapping[str, Shape] = {
    "integers": INTEGERS,
    "members": MEMBERS,
    "text": VALUES["one string"],
    **dict.fromkeys(LARGE, lambda size_bytes: MEMBERS(size_bytes // 2 // MANY)),
}
"""The large records that inputs need, by key."""


def record(table: Table, key: str) -> bytes:
    """Return the value of a large record. It leaves room for an update that makes the record larger."""
    return within(RECORDS[key], table.value_bytes - 2048, ELEMENTS_MAX // 2)


# Single requests


def singles() -> Iterator[Input]:
    """Return requests with one operation."""
    for name, shape in {**VALUES, **FAULTY}.items():
        yield Input(f"PUT {name}", partial(_put, partial(within, shape)))
    for name in ("[[[]], ...]", "no end"):
        yield Input(f"PUT too many {name}", partial(_put, {**VALUES, **FAULTY}[name]))
    for name, shape in UPDATES.items():
        yield Input(f"PATCH {name}", partial(_patch, partial(within, shape)))
    for name in ("array of {}", "$push, $each {}"):
        yield Input(f"PATCH too many {name}", partial(_patch, UPDATES[name]))
    for name in ("[1.0, ...]", '{"0":1, "1":1, ...}'):
        shape = partial(within, VALUES[name])
        yield Input(f"PUT {name}, returned", partial(_put, shape, headers=RETURNED))
        yield Input(f"PATCH merge {name}", partial(_patch, shape, around=b"#", headers=MERGE))
        yield Input(f"PATCH default {name}", partial(_patch, shape, around=b'{"update":{"$inc":{"n":1}},"default":#}'))
    for key in ("integers", "members", "text"):
        fields = "?fields=" + ",".join(map(str, range(FIELDS_MAX)))
        yield Input(f"GET {key}", partial(_record, "GET", key, b"", ""), (key,))
        yield Input(f"GET {key}, fields", partial(_record, "GET", key, b"", fields), (key,))
        for name, body in SMALL_UPDATES.items():
            yield Input(f"PATCH {name} of {key}, returned", partial(_record, "PATCH", key, body, ""), (key,))


def _put(shape: Shape, table: Table, headers: Mapping[str, str] = JSON) -> Sent:
    return Sent("PUT", table.record("put"), shape(table.value_bytes), headers)


def _patch(
    shape: Shape,
    table: Table,
    around: bytes = b'{"update":#,"default":{"n":0,"s":"","l":[]}}',
    headers: Mapping[str, str] = JSON,
) -> Sent:
    head, _, tail = around.partition(b"#")
    body = head + shape(BODY_BYTES - len(head) - len(tail)) + tail
    return Sent("PATCH", table.record("patched"), body, headers)


def _record(method: str, key: str, body: bytes, query: str, table: Table) -> Sent:
    return Sent(method, table.record(key) + query, body, RETURNED)


# Batches as JSON


def batches() -> Iterator[Input]:
    """Return batches of as many operations as possible, and batches with long or faulty texts."""
    for name, (text, shape) in OPERATIONS_OF_BATCHES.items():
        yield Input(f"batch {name}", partial(_batch, text, shape))
    yield Input("batch put, few, [1.0, ...]", partial(_few, VALUES["[1.0, ...]"]))
    for name, text in OPERATIONS_ON_LARGE.items():
        needs = LARGE if b"#" in text else ("members",)
        yield Input(f"batch {name}", partial(_batch, text, None, keys=MANY), needs)
    for name, shape in BODIES.items():
        yield Input(f"batch {name}", partial(_body, shape))


def _batch(text: bytes, shape: Shape | None, table: Table, keys: int = OPERATIONS) -> Sent:
    """Return a batch of one operation with different numbers for `#`. A shape fills it in place of `SIZED`."""
    sized = text.replace(b"SIZED", shape(OPERATION_BYTES - len(text) - 4) if shape else b"")
    operations = (sized.replace(b"#", b"%d" % (number % keys)) for number in range(OPERATIONS))
    return Sent("POST", f"{table.path}/batch", filled(b'{"operations":[', operations, b"]}", BODY_BYTES))


def _few(shape: Shape, table: Table) -> Sent:
    """Return as many of the largest puts as fit."""
    value = within(shape, table.value_bytes // 4)
    return _batch(b'{"op":"put","key":"few#","value":%b}' % value, None, table)


def _body(shape: Shape, table: Table) -> Sent:
    return Sent("POST", f"{table.path}/batch", shape(BODY_BYTES))


_UPDATE = b'{"op":"update","key":"u#","update":SIZED,"default":{}}'
_UPDATE_ONE = _UPDATE.replace(b"#", b"")
_TEXTS = partial(repeated, b'"a"', head=b"[", tail=b"]")

OPERATIONS_OF_BATCHES: Mapping[str, tuple[bytes, Shape | None]] = {
    "get, fields": (b'{"op":"get","key":"b#","fields":SIZED}', _TEXTS),
    "put, keys, [1.0, ...]": (b'{"op":"put","key":"b#","value":SIZED}', VALUES["[1.0, ...]"]),
    "put, keys, [[[]], ...]": (b'{"op":"put","key":"b#","value":SIZED}', VALUES["[[[]], ...]"]),
    "put and update, one key": (b'{"op":"put","key":"b","value":{}},{"op":"update","key":"b","update":{"a":#}}', None),
    "put, one key, tokens": (b'{"op":"put","key":"b","value":{},"token":{"writer":"w#","sequence":#}}', None),
    "update, one key, $addToSet": (b'{"op":"update","key":"add","update":{"$addToSet":{"a":#}},"default":{}}', None),
    "update, one key, returned": (
        b'{"op":"update","key":"returned","update":{"$push":{"a":#}},"default":{},"return":true}',
        None,
    ),
    "update, one key, $set, many deep paths apart": (_UPDATE_ONE, UPDATES["$set, many deep paths apart"]),
    "update, one key, merge patch, deep": (_UPDATE_ONE, UPDATES["merge patch, deep"]),
    "update, one key, array of $push": (_UPDATE_ONE, UPDATES["array of $push"]),
    "update, keys, array of {}": (_UPDATE, UPDATES["array of {}"]),
    "update, keys, $addToSet, $each integers": (_UPDATE, UPDATES["$addToSet, $each integers"]),
    "update, defaults": (
        b'{"op":"update","key":"d#","update":{"$inc":{"n":1}},"default":SIZED}',
        VALUES["[[[]], ...]"],
    ),
    "delete, tokens": (b'{"op":"delete","key":"gone#","token":{"writer":"w","sequence":#}}', None),
    "numbers for operations": (b"#", None),
    "partitions": (b'{"op":"get","key":"b#","partitions":SIZED}', partial(repeated, b"0", head=b"[", tail=b"]")),
}

OPERATIONS_ON_LARGE: Mapping[str, bytes] = {
    "get, one large record": b'{"op":"get","key":"members"}',
    "get, large records": b'{"op":"get","key":"large-#"}',
    "get, large records, one field": b'{"op":"get","key":"large-#","fields":["1"]}',
    "update, large records, tokens": (
        b'{"op":"update","key":"large-#","update":{"$inc":{"z":1}},"token":{"writer":"w","sequence":#}}'
    ),
    "update, large records, returned, one field": (
        b'{"op":"update","key":"large-#","update":{"$inc":{"z":1}},"return":true,"fields":["z"]}'
    ),
}

_HEAD = b'{"operations":['
_KEY = _HEAD + b'{"op":"get","key":'
BODIES: Mapping[str, Shape] = {
    "of too many: {}": partial(repeated, b"{}", head=_HEAD, tail=b"]}"),
    "without end: [[]]": partial(repeated, b"[[]]", head=_HEAD, tail=b""),
    "a key of many arrays": partial(repeated, b"[]", head=_KEY + b"[", tail=b"]}]}"),
    "a long key": lambda size: _KEY + b'"' + b"k" * (size - 100) + b'"}]}',
    "many fields": partial(repeated, b'"a"', head=_KEY + b'"a","fields":[', tail=b"]}]}"),
    "many members": lambda size: _HEAD + MEMBERS(size - 100) + b"]}",
    "an operation inside": partial(
        repeated, b"[[]]", head=_KEY + b'"a"},{"op":"put","key":"b","value":{"a":[', tail=b"]}}]}"
    ),
    "deep": partial(repeated, DEEP, head=_HEAD, tail=b"]}"),
    "blanks": lambda size: _HEAD + b" " * (size - 100) + b"]}",
}
"""Bodies of batches that are not full of operations."""


# Scans, long heads, and pages


def reads() -> Iterator[Input]:
    """Return requests that read a table or a page, and requests with the longest heads."""
    for name, (query, needs) in SCANS.items():
        yield Input(f"scan {name}", partial(_get, f"TABLE/records?{query}"), needs)
    arrow = {**JSON, "Accept": "application/vnd.apache.arrow.stream"}
    yield Input("scan large records, Arrow", partial(_get, "TABLE/records?prefix=large-", headers=arrow), LARGE)
    yield Input("splits", partial(_get, f"TABLE/splits?count={SPLITS_MAX}"), (CROWD,))
    size = HEAD_BYTES_MAX - 2048
    for header, piece in LONG_HEADERS.items():
        headers = {**JSON, header: piece * (size // len(piece) - 1)}
        yield Input(f"GET, long {header}", partial(_get, "TABLE/records/head", headers=headers))
    for header in LONG_HEADERS:
        headers = {**JSON, header: f"a{' ' * size}a"}
        yield Input(f"GET, spaces in {header}", partial(_get, "TABLE/records/head", headers=headers))
    many = {f"x-{number}": "a" * (size // HEADERS_MAX - 20) for number in range(HEADERS_MAX - 16)}
    yield Input("GET, many headers", partial(_get, "TABLE/records/head", headers={**JSON, **many}))
    for name, (path, piece) in LONG_PATHS.items():
        yield Input(f"GET, long {name}", partial(_get, path + piece * ((size - 100) // len(piece))))
    for path in ("/livez", "/metrics", "/openapi.json", "/docs", "/v1/tables", "/console"):
        yield Input(f"GET {path}", partial(_get, path))
    for key in ("members", "text"):
        yield Input(f"console, {key}", partial(_get, f"/console/tables/NAME/record?k0={key}"), (key,))
    yield Input("console, scan of large records", partial(_get, "/console/tables/NAME/records?prefix=large-"), LARGE)
    yield Input("console, scan, no match", partial(_get, "/console/tables/NAME/records?prefix=zzz"), (CROWD,))


def _get(path: str, table: Table, headers: Mapping[str, str] = JSON) -> Sent:
    return Sent("GET", path.replace("TABLE", table.path).replace("NAME", table.name), b"", headers)


SCANS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "all": (f"limit={PAGE_RECORDS_MAX}", (CROWD, *LARGE)),
    "no match": ("prefix=zzz", (CROWD,)),
    "crowd": (f"prefix=crowd-&limit={PAGE_RECORDS_MAX}", (CROWD,)),
    "expired": ("prefix=gone-&limit=1", (GONE,)),
    "large records": ("prefix=large-", LARGE),
    "large records, one field": ("prefix=large-&fields=1", LARGE),
    "long prefix": (f"prefix={'a' * 1024}", ()),
}
"""Queries of scans, and the records that they need."""

LONG_HEADERS = {
    "If-None-Match": '"a",',
    "Accept": "a/b;q=1,",
    "Prefer": "a=b,",
    "Cache-Control": "max-age=1,",
    "Tableside-Token": "a/",
    "Idempotency-Key": '"\\\\',
    "Authorization": "Bearer ",
    "tracestate": "a=b,",
    "Content-Type": "a/b;charset=",
    "Connection": "a,",
}
"""Headers by name, and the text that they repeat."""

LONG_PATHS = {
    "query a&": ("TABLE/records/head?", "a&"),
    "query fields, encoded": ("TABLE/records/head?fields=", "%61%2C"),
    "query partitions": ("TABLE/records?partitions=0", ",0"),
    "query cursor": ("TABLE/records?cursor=", "A"),
    "query prefix": ("TABLE/records?prefix=", "%C3%BC"),
    "path, encoded": ("TABLE/records/head", "%61"),
    "path, segments": ("TABLE/records/head", "/a"),
    "path of tables": ("/v1/tables/", "a"),
    "console, query": ("/console?name=", "%61"),
}
"""Beginnings of paths by name, and the text that they repeat."""
