"""Parse JSON text with a schema in the JVM, and name the column and the key of a value that does not fit.

Most expressions are in SQL, because each takes one call of the JVM. A `Column` takes a call for each of its parts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from tableside_spark.executor.mismatch import MESSAGE
from tableside_spark.versions import HAS_VARIANTS

_MISFIT = "__tableside_misfit"
"""The member that receives the whole text from `from_json` if a part of the text does not fit."""
_WITH_MISFIT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
_NUMBERS = "'bigint', 'decimal', 'double', 'float'"


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value that is read with a schema. The error contains its table and the row's key, in the columns `keys`.

    Their names stand in SQL as they are.
    """

    schema: StructType
    table: str
    keys: Sequence[str]

    def parse(self, text: Column) -> Column:
        """Return the struct of JSON text. Members that do not fit are null."""
        return _parse(text, self.schema.fields)

    def misfit(self, parsed: str) -> Column:
        """Return the name of the first member that does not fit, or null. `parsed` is a column from `parse`."""
        nested = [field for field in self.schema if isinstance(field.dataType, ArrayType | MapType | StructType)]
        text = F.col(f"{parsed}.{_MISFIT}")
        alone = [
            F.when(_parse(text, [field]).getField(_MISFIT).isNotNull(), F.lit(field.name)) for field in nested[:-1]
        ]
        last = F.lit((nested or self.schema.fields)[-1].name)
        return F.when(text.isNotNull(), F.coalesce(F.expr(self._missing(parsed)), *alone, last))

    def require_fit(self, parsed: str, misfit: str) -> Column:
        """Return `parsed`, or raise an error of one line if the column `misfit` is not null.

        `misfit` is a column of the result of the method. The plan would otherwise contain its expression several times,
        which multiplies the time to compile it.
        """
        key = f"to_json(array({', '.join(f'CAST({name} AS string)' for name in self.keys)}))"
        if len(self.keys) == 1:
            key = f"substring({key}, 2, length({key}) - 2)"
        found = _json_type(f"{parsed}.{_MISFIT}", misfit)
        parts = [_literal(self.table), misfit, found, key, f"element_at({self._types()}, {misfit})"]
        error = f"raise_error(format_string({_literal(MESSAGE)}, {', '.join(parts)}))"
        return F.expr(f"CASE WHEN {misfit} IS NULL THEN {parsed} ELSE {error} END")

    def _missing(self, parsed: str) -> str:
        """Return, in SQL, the first column that is null although the text has a value for it, or null."""
        members = f"from_json({parsed}.{_MISFIT}, 'map<string,string>')"
        is_given = f"(name, member) -> member IS NOT NULL AND element_at({self._types()}, name) IS NOT NULL"
        read = f"json_object_keys(to_json({parsed}, map('ignoreNullFields', 'true')))"
        return f"get(array_except(map_keys(map_filter({members}, {is_given})), {read}), 0)"

    def _types(self) -> str:
        """Return, in SQL, a map from columns to types."""
        types = {field.name: field.dataType.simpleString() for field in self.schema}
        return f"from_json({_literal(json.dumps(types))}, 'map<string,string>')"


def _parse(text: Column, fields: Sequence[StructField]) -> Column:
    return F.from_json(text, StructType([*fields, StructField(_MISFIT, StringType())]), _WITH_MISFIT)


def _literal(text: str) -> str:
    """Return text in SQL, whatever characters it has, and whether or not the session has escaped literals."""
    return f"decode(X'{text.encode().hex()}', 'UTF-8')"


def _json_type(text: str, member: str) -> str:
    """Return, in SQL, `string`, `number`, `boolean`, `object` or `array`. Return `value` if there are no variants."""
    if not HAS_VARIANTS:
        return "'value'"
    found = f"element_at(CAST(try_parse_json({text}) AS map<string,variant>), {member})"
    kind = f"lower(regexp_extract(schema_of_variant({found}), '^[A-Z]+', 0))"
    return f"coalesce(CASE WHEN {kind} IN ({_NUMBERS}) THEN 'number' ELSE {kind} END, 'value')"
