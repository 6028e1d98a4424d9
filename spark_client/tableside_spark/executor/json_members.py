"""Read members of JSON values into Arrow arrays, without a Python object per value."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

_BLOCK_BYTES_MIN = 1024


class UnreadableMembersError(ValueError):
    """A text is not one JSON object, or a member does not have the type of the schema."""


def read_members(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Read the members in `schema` of JSON texts, which are strings or binary, as one array per member.

    Absent members are null. Members that are not in the schema are ignored.

    Raises `UnreadableMembersError` if a text is null or not exactly one object. Raises it also if a member in the
    schema has another type, does not fit its type, or is repeated.
    """
    if not len(values):
        return [pa.array([], kind) for kind in schema.types]
    _require_objects(values)
    try:
        lines = pc.binary_join(_as_one_list(values), pa.scalar("\n", values.type))
        table = _parse(lines[0].as_buffer(), schema)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise UnreadableMembersError from error
    if len(table) != len(values):
        raise UnreadableMembersError
    return [column.combine_chunks() for column in table.select(schema.names).columns]


def _require_objects(values: pa.Array) -> None:
    """Raise unless each text has the form `{…}`.

    A text that begins with `{` cannot continue an incomplete one before it, so with as many objects as texts, each
    text is one object.
    """
    whole = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
    if not pc.all(pc.fill_null(whole, False)).as_py():
        raise UnreadableMembersError


def _as_one_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _parse(text: pa.Buffer, schema: pa.Schema) -> pa.Table:
    parsing = pj.ParseOptions(explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore")
    reading = pj.ReadOptions(use_threads=False, block_size=max(text.size + 1, _BLOCK_BYTES_MIN))
    return pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=parsing)
