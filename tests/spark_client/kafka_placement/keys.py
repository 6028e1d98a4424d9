"""500 keys and the partitions that Kafka's producer chooses. `KafkaPlacement.java` in this folder computed them."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Placed:
    key: bytes | str
    hash: int
    num_partitions: int
    partition: int


def placed() -> list[Placed]:
    lines = Path(__file__).with_name("kafka_placement.tsv").read_text(encoding="ascii").splitlines()
    return [_placed(*line.split("\t")) for line in lines]


def _placed(kind: str, key: str, *numbers: str) -> Placed:
    found, (num_partitions, signed, partition) = bytes.fromhex(key), map(int, numbers)
    return Placed(found.decode() if kind == "text" else found, signed & 0xFFFFFFFF, num_partitions, partition)
