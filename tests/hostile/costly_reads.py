"""Requests that read a table, requests with the longest heads, and requests for resources that are not records."""

from collections.abc import Iterator
from functools import partial

from hostile.bounds import Bounds
from hostile.costly import JSON, MANY, Input, records
from hostile.costs import Sent


def scans(bounds: Bounds) -> Iterator[Input]:
    """Return every input that reads a table. `crowd-` and `gone-` are the keys of many and of expired records."""
    path, large = f"/v1/tables/{bounds.table}/records", tuple(f"large-{number}" for number in range(MANY))
    arrow = {**JSON, "Accept": "application/vnd.apache.arrow.stream"}
    for name, query in {
        "all": f"limit={bounds.page_records}",
        "no match": "prefix=zzz",
        "no match, first": "prefix=!",
        "crowd": f"prefix=crowd-&limit={bounds.page_records}",
        "expired": "prefix=gone-&limit=1",
        "large records": "prefix=large-",
        "large records, one field": "prefix=large-&fields=1",
        "large records, absent field": f"prefix=large-&fields=none&limit={bounds.page_records}",
        "largest records, one field": "fields=1",
        "long prefix": f"prefix={'a' * bounds.key_bytes}",
    }.items():
        needs = large if "large" in name else ("crowd",) if name in ("crowd", "no match", "no match, first") else ()
        needs = ("gone",) if name == "expired" else ("members", "text", "integers") if "largest" in name else needs
        yield Input(f"scan {name}", partial(Sent, "GET", f"{path}?{query}", b"", JSON), needs)
        if "large" in name or name == "crowd":
            yield Input(f"scan {name}, Arrow", partial(Sent, "GET", f"{path}?{query}", b"", arrow), needs)
    splits = f"/v1/tables/{bounds.table}/splits?count={bounds.splits}"
    yield Input("splits", partial(Sent, "GET", splits, b"", JSON), ("crowd",))


def heads(bounds: Bounds) -> Iterator[Input]:
    """Return requests with the longest heads."""
    size, record = bounds.head_bytes, f"/v1/tables/{bounds.table}/records/head"
    table = f"/v1/tables/{bounds.table}/records"

    def text(piece: str) -> str:
        return piece * (size // len(piece) - 1)

    for name, header, piece in (
        *(
            ("If-None-Match", "If-None-Match", '"a",'),
            ("If-Match", "If-Match", '"a",'),
            ("Accept, q", "Accept", "a/b;q=1,"),
        ),
        *(
            ("Prefer", "Prefer", "a=b,"),
            ("Cache-Control", "Cache-Control", "max-age=1,"),
            ("token", "Tableside-Token", "a/"),
        ),
        *(("Idempotency-Key", "Idempotency-Key", '"\\\\'), ("If-None-Match, no end", "If-None-Match", '"')),
        *(("Authorization", "Authorization", "Bearer "), ("tracestate", "tracestate", "a=b,")),
        *(("Content-Type", "Content-Type", "a/b;charset="), ("Connection", "Connection", "a,")),
    ):
        for method in ("GET", "PUT"):
            headers = {**JSON, header: text(piece)}
            yield Input(
                f"{method}, long {name}", partial(Sent, method, record, b"{}"[: 2 * (method == "PUT")], headers)
            )
    for name, target in {
        "query a&": f"{record}?{text('a&')}",
        "query fields, encoded": f"{record}?fields={text('%61%2C')}",
        "query partitions": f"{table}?partitions={text('0,')}0",
        "query limit": f"{table}?limit={text('9')}",
        "query cursor": f"{table}?cursor={text('A')}",
        "query prefix": f"{table}?prefix={text('%C3%BC')}",
        "path, encoded": f"{record}{text('%61')}",
        "path, segments": f"{record}{text('/a')}",
        "path of tables": f"/v1/tables/{text('a')}",
        "console, query": f"/console?name={text('%61')}",
        "console, scan, query": f"/console/tables/{bounds.table}/records?cursor={text('A')}",
    }.items():
        yield Input(f"GET, long {name}", partial(Sent, "GET", target, b"", JSON))
    many = {f"x-{number}": "a" * (size // bounds.headers - 20) for number in range(bounds.headers)}
    yield Input("GET, many headers", partial(Sent, "GET", record, b"", {**JSON, **many}))


def pages(bounds: Bounds) -> Iterator[Input]:
    """Return requests for pages, documents and metrics, and forms of the console."""
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/tables", "/console", "/console/live"):
        yield Input(f"GET {path}", partial(Sent, "GET", path))
    for key in ("integers", "members", "text", "arrays"):
        path = f"/console/tables/{bounds.table}/record?k0={key}"
        yield Input(f"console, {key}", partial(Sent, "GET", path), (key,))
    scan = f"/console/tables/{bounds.table}/records"
    yield Input("console, scan of large records", partial(Sent, "GET", scan), tuple(records(bounds)))
    yield Input("console, scan, no match", partial(Sent, "GET", f"{scan}?prefix=zzz"), ("crowd",))
    yield Input("console, table", partial(Sent, "GET", f"/console/tables/{bounds.table}"))
