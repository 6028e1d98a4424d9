"""Murmur2, the hash that Kafka's producers use to choose the partition of a key."""

from struct import iter_unpack

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2 of `data` (org.apache.kafka.common.utils.Utils.murmur2), as an unsigned integer."""
    state = _SEED ^ len(data)
    whole = len(data) & ~3
    for (word,) in iter_unpack("<I", data[:whole]):
        word = word * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        state = (state * _FACTOR & _WORD) ^ word
    if len(data) > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _WORD
    state = (state ^ state >> 13) * _FACTOR & _WORD
    return state ^ state >> 15
