"""12,000 keys and where Kafka's own producer puts them; `KafkaPlacement.java` beside this says how that was found."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

_CHARACTERS = ("a", "Z", "0", "-", "é", "ß", "Ж", "漢", "€", "\0", "🛫", "\u0301")
_BINARY = 8_000


@dataclass(frozen=True, slots=True)
class Placed:
    key: bytes | str
    hash: int
    num_partitions: int
    partition: int


def placed() -> list[Placed]:
    lines = Path(__file__).with_name("kafka_placement.tsv").read_text(encoding="ascii").splitlines()
    return [_placed(number, *map(int, line.split("\t"))) for number, line in enumerate(lines)]


def _placed(number: int, signed: int, partition: int) -> Placed:
    key = _bytes(number) if number < _BINARY else _text(number)
    return Placed(key, signed & 0xFFFFFFFF, 1 + number % 97, partition)


def _bytes(number: int) -> bytes:
    digest = _digest(number)
    return bytes((digest[at % 32] + at // 32) & 255 for at in range(number % 200))


def _text(number: int) -> str:
    digest = _digest(number)
    return "".join(_CHARACTERS[(digest[at % 32] + at // 32) % 12] for at in range(number % 40))


def _digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()
