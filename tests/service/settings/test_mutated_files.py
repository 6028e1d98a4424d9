"""Mutated configurations: every file is either valid or refused with a list of faults."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings, strategies as st

from tableside.settings import Fault, Settings, SettingsError, load_text, validate

ENVIRONMENT = {"NAME": "text"}

COMPLETE: dict[str, Any] = {
    "stores": {
        "local": {"kind": "rocksdb", "path": "data", "sweep_every_s": 5},
        "cache": {"kind": "redis", "url": "redis://h:6379/0", "username": "u", "password": "${NAME}"},
        "orders": {"kind": "postgres", "dsn": "postgresql://u:p@h:5432/x", "schema": "s"},
        "aws": {"kind": "dynamodb", "endpoint_url": "http://h:8000", "region": "eu-west-1"},
        "all": {"kind": "partitioned", "partitions": ["cache", "local"]},
    },
    "tables": {
        "visits": {"store": "orders", "layout": "columns", "key": {"user": "string", "day": "integer"}, "ttl_s": 5},
        "hot": {"store": "cache", "prefix": "h:", "cache": {"records_max": 5, "ttl_s": 1}},
        "slow": {
            "store": "aws",
            "read": {"rate_per_s": 5},
            "limiter": "cache",
            "batch": {"operations_max": 10},
        },
        "parts": {"store": "all", "write": {"attempts_max": 5, "pause_s": 1}},
    },
    "limits": {"in_flight_max": 5, "drain_s": 0.5},
    "auth": {
        "tokens": [{"name": "a", "sha256": "1" * 64, "read": ["*"]}],
        "issuers": [{"issuer": "https://i", "audience": "x", "rules": [{"claims": {"sub": ["a*"]}, "read": ["*"]}]}],
    },
    "auto_create": True,
    "default_store": "local",
    "hosts": ["a.example"],
    "traces": {"endpoint": "http://h:4318", "sample": 0.5},
}

ODD: list[Any] = [
    *(None, True, -1, 0, 2**70, 1.5, float("nan"), float("inf"), "", "x", "\0", "é" * 300, "a/b", "${NAME}", "${NONE}"),
    *("http://[", "redis://h:x", "postgresql://[::", "unix://", "/", "../..", "~", b"bytes", [], {}, [[]], {"a": {}}),
    *(
        [None] * 3,
        {"": 1},
        {"\0": None},
        {"kind": "memory"},
        {"kind": []},
        {"kind": "partitioned", "partitions": ["all"]},
    ),
]


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return every collection in the data with each of its names or positions."""
    names = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else []
    return [place for name in names for place in [(data, name), *places(data[name])]]


def refusal(text: str) -> list[Fault]:
    """Return the faults of a text. Any exception but SettingsError fails the test."""
    return _faults(lambda: load_text(text, ENVIRONMENT, directory=Path()))


def _faults(validated: Callable[[], Settings]) -> list[Fault]:
    try:
        validated()
    except SettingsError as error:
        return error.faults
    return []


def test_the_complete_configuration_is_valid() -> None:
    assert refusal(yaml.safe_dump(COMPLETE)) == []


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), odd=st.lists(st.sampled_from(ODD), min_size=1, max_size=4))
def test_odd_values_anywhere_are_valid_or_faults(seed: int, odd: list[Any]) -> None:
    chosen, data = random.Random(seed), copy.deepcopy(COMPLETE)
    for value in odd:
        collection, name = chosen.choice(places(data))
        collection[name] = copy.deepcopy(value)
    _faults(lambda: validate(data, ENVIRONMENT))
    refusal(yaml.safe_dump(data))


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), pieces=st.lists(st.sampled_from(list("[]{}:,-&*!|>'\"%@`#?~<=\t\n 0a")), max_size=6))
def test_texts_with_inserted_or_removed_characters_are_valid_or_faults(seed: int, pieces: list[str]) -> None:
    chosen, text = random.Random(seed), yaml.safe_dump(COMPLETE)
    for piece in pieces:
        place, dropped = chosen.randrange(len(text)), chosen.choice([0, 0, 1, 5, 200])
        text = text[:place] + piece + text[place + dropped :]
    refusal(text)
