"""Values as dataclasses, msgspec structs and pydantic models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest

from tableside_client.results import conversions


@dataclass
class Address:
    city: str


@dataclass
class Person:
    name: str
    addresses: list[Address] = field(default_factory=list)
    home: Address | None = None
    by_name: dict[str, Address] = field(default_factory=dict)
    visits: int = 0


class PersonStruct(msgspec.Struct):
    name: str
    visits: int = 0


class PersonModel(pydantic.BaseModel):
    name: str
    visits: int = 0


FULL = Person("Ada", [Address("London")], Address("Paris"), {"work": Address("Rome")}, 3)


def test_a_dataclass_is_decoded_with_nested_dataclasses() -> None:
    decode, encode = conversions(Person)
    assert decode(dict(encode(FULL))) == FULL
    assert decode({"name": "Ada", "home": None, "unknown": 1}) == Person("Ada")
    with pytest.raises(TypeError, match="name"):
        decode({"visits": 1})


@pytest.mark.parametrize(("kind", "error"), [(PersonStruct, msgspec.ValidationError), (PersonModel, ValueError)])
def test_structs_and_models_validate(kind: type[Any], error: type[Exception]) -> None:
    decode, encode = conversions(kind)
    assert encode(kind(name="Ada")) == {"name": "Ada", "visits": 0}
    assert decode({"name": "Ada", "visits": 2}) == kind(name="Ada", visits=2)
    with pytest.raises(error):
        decode({"name": "Ada", "visits": "many"})


def test_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="dataclass"):
        conversions(int)


@pytest.mark.server
@pytest.mark.parametrize("kind", [PersonStruct, PersonModel, Person])
async def test_a_typed_table_returns_its_type(opened: Callable[..., Any], name: str, kind: type[Any]) -> None:
    table = (await opened()).table(name, kind)
    ada = kind(name="Ada", visits=2)
    await table.put("ada", ada)
    await table.update("grace", {"$inc": {"visits": 1}}, default=kind(name="Grace"))
    assert await table.get("ada") == (await table.record("ada")).value == ada
    assert await table.get_many(["ada", "grace"]) == {"ada": ada, "grace": kind(name="Grace", visits=1)}
    assert {record.value.name async for record in table.scan()} == {"Ada", "Grace"}
    [put, got] = await table.batch([{"op": "put", "key": "b", "value": ada}, {"op": "get", "key": "b"}])
    assert (put.ok, got.value) == (True, ada)
