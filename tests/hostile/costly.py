"""The largest requests with one operation, of each shape within the limits, for one table."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from hostile import shapes
from hostile.bounds import Bounds
from hostile.costs import Sent
from hostile.shapes import Shape, filled, names_as_text, within

WAIT_S = 2
"""The deadline of every request."""

JSON = {"Content-Type": "application/json", "Prefer": f"wait={WAIT_S}"}
MERGE = {**JSON, "Content-Type": "application/merge-patch+json"}
RETURNED = {**JSON, "Prefer": f"wait={WAIT_S}, return=representation"}

MANY = 16
"""The number of large records of one kind."""

LARGEST = 5
"""The number of records of nearly the maximum size: more than fit into a response."""

ROOM_BYTES = 2**20
"""How much an update may add to such a record."""

_DEFAULT = b'{"n":0,"s":"","l":[]}'
_COSTLY_VALUES = ("[1.0, ...]", "[[[]], ...]", '{"0":1, "1":1, ...}', "[{}, ...]")


@dataclass(frozen=True)
class Input:
    """A request by the name of its shape, and the records that it needs, by key."""

    name: str
    make: Callable[[], Sent]
    needs: tuple[str, ...] = ()


def records(bounds: Bounds) -> Mapping[str, Shape]:
    """Return the large records that inputs need, by key."""
    largest = shapes.VALUES["[strings of 1 KB, ...]"](max(bounds.record_bytes, bounds.value_bytes - ROOM_BYTES))
    named: dict[str, Shape] = {
        "integers": lambda size: filled(b'{"a":[', names_as_text(), b"]}", size),
        "members": shapes.VALUES['{"0":1, "1":1, ...}'],
        "strings": shapes.VALUES['["a", ...]'],
        "long strings": shapes.VALUES["[strings of 1 KB, ...]"],
        "arrays": shapes.VALUES["[[], ...]"],
        "text": shapes.VALUES["one string"],
    }
    found = {key: partial(within, shape, bounds.elements // 2) for key, shape in named.items()}
    return {
        **found,
        **{f"large-{number}": partial(_part, found["members"]) for number in range(MANY)},
        **{f"largest-{number}": lambda _: largest for number in range(LARGEST)},
    }


def _part(shape: Shape, size_bytes: int) -> bytes:
    return shape(size_bytes // MANY)


def singles(bounds: Bounds) -> Iterator[Input]:
    """Return every input with one operation."""
    yield from _puts(bounds)
    yield from _patches(bounds)
    yield from _small_patches(bounds)
    yield from _gets(bounds)


def sized(
    path: str,
    shape: Shape,
    size_bytes: int,
    headers: Mapping[str, str] = JSON,
    method: str = "POST",
    around: bytes = b"#",
) -> Sent:
    """Return a request whose body has this size. A shape fills it in place of `#`."""
    head, _, tail = around.partition(b"#")
    return Sent(method, path, head + shape(size_bytes - len(head) - len(tail)) + tail, headers)


def _puts(bounds: Bounds) -> Iterator[Input]:
    put = partial(sized, f"/v1/tables/{bounds.table}/records/put", size_bytes=bounds.value_bytes, method="PUT")
    for name, shape in {**shapes.VALUES, **shapes.FAULTY}.items():
        yield Input(f"PUT {name}", partial(put, partial(within, shape, bounds.elements)))
        yield Input(f"PUT too many {name}", partial(put, shape))
    for name in _COSTLY_VALUES:
        shape = partial(within, shapes.VALUES[name], bounds.elements)
        yield Input(f"PUT {name}, returned", partial(put, shape, headers=RETURNED))


def _patches(bounds: Bounds) -> Iterator[Input]:
    patch = partial(sized, f"/v1/tables/{bounds.table}/records/patched", size_bytes=bounds.body_bytes, method="PATCH")
    for name, shape in shapes.updates(bounds.changes).items():
        around = b'{"update":#,"default":' + _DEFAULT + b"}"
        yield Input(f"PATCH {name}", partial(patch, partial(within, shape, bounds.elements - 10), around=around))
        yield Input(f"PATCH too many {name}", partial(patch, shape, around=around))
    for name in _COSTLY_VALUES:
        shape = partial(within, shapes.VALUES[name], bounds.elements - 10)
        default = partial(patch, shape, around=b'{"update":{"$inc":{"n":1}},"default":#}')
        yield Input(f"PATCH default {name}", default)
        yield Input(f"PATCH merge {name}", partial(patch, shape, headers=MERGE))


def _small_patches(bounds: Bounds) -> Iterator[Input]:
    for key in ("integers", "members", "strings", "long strings", "arrays"):
        for name, update in shapes.small_updates(bounds.changes).items():
            path = f"/v1/tables/{bounds.table}/records/{quote(key)}"
            yield Input(f"PATCH {name} of {key}", partial(Sent, "PATCH", path, b'{"update":%b}' % update, JSON), (key,))


def _gets(bounds: Bounds) -> Iterator[Input]:
    fields = ",".join(f"{number:x}" for number in range(bounds.fields))
    for key in ("integers", "members", "text"):
        path = f"/v1/tables/{bounds.table}/records/{key}"
        yield Input(f"GET {key}", partial(Sent, "GET", path, b"", JSON), (key,))
        yield Input(f"GET {key}, fields", partial(Sent, "GET", f"{path}?fields={fields}", b"", JSON), (key,))
