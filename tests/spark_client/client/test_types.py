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


def test_a_dataclass_has_nested_dataclasses_and_ignores_unknown_members() -> None:
    decode, encode = conversions(Person)
    full = Person("Ada", [Address("London")], Address("Paris"), {"work": Address("Rome")}, 3)
    assert decode(dict(encode(full))) == full
    assert decode({"name": "Ada", "home": None, "unknown": 1}) == Person("Ada")


@pytest.mark.parametrize(
    ("kind", "error"), [(PersonStruct, msgspec.ValidationError), (PersonModel, ValueError), (Person, TypeError)]
)
def test_a_value_that_does_not_fit_its_type_is_an_error(kind: type[Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="name"):
        conversions(kind)[0]({"visits": 2})


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
