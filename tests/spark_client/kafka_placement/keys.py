"""500 keys and the partitions that Kafka's producer chooses. `KafkaPlacement.java` in this folder computed them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

_CHARACTERS = ("a", "Z", "0", "-", "é", "ß", "Ж", "漢", "€", "\0", "🛫", "\u0301")
_BINARY = range(300)
_TEXT = range(8_000, 8_200)


@dataclass(frozen=True, slots=True)
class Placed:
    key: bytes | str
    hash: int
    num_partitions: int
    partition: int


def placed() -> list[Placed]:
    lines = Path(__file__).with_name("kafka_placement.tsv").read_text(encoding="ascii").splitlines()
    numbers = [*_BINARY, *_TEXT]
    return [_placed(number, *map(int, line.split("\t"))) for number, line in zip(numbers, lines, strict=True)]


def _placed(number: int, signed: int, partition: int) -> Placed:
    key = _bytes(number) if number in _BINARY else _text(number)
    return Placed(key, signed & 0xFFFFFFFF, 1 + number % 97, partition)


def _bytes(number: int) -> bytes:
    digest = _digest(number)
    return bytes((digest[at % 32] + at // 32) & 255 for at in range(number % 200))


def _text(number: int) -> str:
    digest = _digest(number)
    return "".join(_CHARACTERS[(digest[at % 32] + at // 32) % 12] for at in range(number % 40))


def _digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()
