"""The values that a lookup found, as Arrow columns: decoded members, or JSON text that the JVM parses."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tableside_spark.executor.json_members import UnreadableMembersError, read_members

FOUND_COLUMN = "__tableside_found"
"""True if the key has a record, otherwise false or null."""
VALUE_COLUMN = "__tableside_value"
"""The JSON text of a value whose members are not decoded."""

_FOUND = pa.field(FOUND_COLUMN, pa.bool_())
_TEXT = pa.field(VALUE_COLUMN, pa.string())


def member_column(position: int) -> str:
    """Return the name of the column of a decoded member."""
    return f"__tableside_member_{position}"


@dataclass(frozen=True, slots=True)
class FoundValues:
    """Makes columns of the JSON texts that a lookup returns.

    `members` are the members that the executor decodes if Arrow and Spark read them equally. None leaves all texts to
    the JVM.
    """

    members: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of `decode`: `FOUND_COLUMN`, the members, and `VALUE_COLUMN`."""
        kinds = [] if self.members is None else self.members.types
        return pa.schema([_FOUND, *(pa.field(member_column(at), kind) for at, kind in enumerate(kinds)), _TEXT])

    def decode(self, texts: pa.Array) -> pa.RecordBatch:
        """Return the columns for texts, which are null for keys without a record.

        Either all values are decoded and `VALUE_COLUMN` is null, or none are and the members are null.
        """
        members = self._members(texts)
        if members is None:
            columns = [*(pa.nulls(len(texts), kind) for kind in self.schema.types[1:-1]), texts]
        else:
            columns = [*members, pa.nulls(len(texts), pa.string())]
        return pa.RecordBatch.from_arrays([pc.is_valid(texts), *columns], schema=self.schema)

    def _members(self, texts: pa.Array) -> list[pa.Array] | None:
        """Return the decoded members, or None if the executor cannot decode a text as Spark does."""
        if self.members is None:
            return None
        try:
            members = read_members(texts.drop_null(), self.members)
        except UnreadableMembersError:
            return None
        if any(map(_has_unusual_double, members)):
            return None
        return members if texts.null_count == 0 else [_spread(member, pc.is_valid(texts)) for member in members]


def _has_unusual_double(column: pa.Array) -> bool:
    """Whether an array has at any depth a NaN, an infinity or -0.0, which Spark and Arrow read differently."""
    if pa.types.is_list(column.type):
        return _has_unusual_double(column.flatten())
    if pa.types.is_struct(column.type):
        return any(map(_has_unusual_double, column.flatten()))
    if not pa.types.is_floating(column.type):
        return False
    negative_zero = pc.and_(pc.equal(column, 0.0), pc.less(pc.divide(1.0, column), 0.0))
    return bool(pc.any(pc.or_(pc.invert(pc.is_finite(column)), negative_zero), min_count=0).as_py())


def _spread(members: pa.Array, is_valid: pa.Array) -> pa.Array:
    """Return an array with the next member at each true position of the mask, and null at the others."""
    positions = pc.subtract(pc.cumulative_sum(is_valid.cast(pa.int32())), 1)
    return members.take(pc.if_else(is_valid, positions, pa.scalar(None, pa.int32())))
