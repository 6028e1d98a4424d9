"""Parse JSON text with a schema in the JVM, and name the column and the key of a value that does not fit."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from tableside_spark.executor.mismatch import MESSAGE
from tableside_spark.plan.frames import quoted
from tableside_spark.versions import HAS_VARIANTS

_MISFIT = "__tableside_misfit"
"""The member that receives the whole text from `from_json` if a part of the text does not fit."""
_WITH_MISFIT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
_NUMBERS = ("bigint", "decimal", "double", "float")


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value that is read with a schema. Its table and the row's key columns are named in the error."""

    schema: StructType
    table: str
    keys: Sequence[str]

    def parse(self, text: Column) -> Column:
        """Return the struct of JSON text. Members that do not fit are null."""
        return _parse(text, self.schema.fields)

    def misfit(self, parsed: Column) -> Column:
        """Return the name of the first member that does not fit, or null. `parsed` is the result of `parse`."""
        text = parsed.getField(_MISFIT)
        return F.when(text.isNotNull(), self._misfit_column(text, parsed))

    def require_fit(self, parsed: Column, misfit: Column) -> Column:
        """Return `parsed`, or raise an error of one line if the result of `misfit` is not null.

        Select `parsed`, `misfit` and the result in three projections, one after the other. Otherwise the plan contains
        their expressions several times, which multiplies the time to compile it.
        """
        key = F.to_json(F.array(*[quoted(name).cast("string") for name in self.keys]))
        if len(self.keys) == 1:
            key = key.substr(F.lit(2), F.length(key) - 2)
        kind = _json_type(parsed.getField(_MISFIT), misfit)
        message = F.format_string(MESSAGE, F.lit(self.table), misfit, kind, key, F.element_at(self._types(), misfit))
        return F.when(misfit.isNull(), parsed).otherwise(F.raise_error(message))

    def _misfit_column(self, text: Column, parsed: Column) -> Column:
        """Return the first column that is null although the text has a value for it, else the first nested misfit."""
        given = F.map_filter(
            F.from_json(text, "map<string,string>"),
            lambda name, member: member.isNotNull() & F.element_at(self._types(), name).isNotNull(),
        )
        read = F.json_object_keys(F.to_json(parsed, {"ignoreNullFields": "true"}))
        missing = F.get(F.array_except(F.map_keys(given), read), F.lit(0))
        nested = [field for field in self.schema if isinstance(field.dataType, ArrayType | MapType | StructType)]
        alone = [
            F.when(_parse(text, [field]).getField(_MISFIT).isNotNull(), F.lit(field.name)) for field in nested[:-1]
        ]
        return F.coalesce(missing, *alone, F.lit((nested or self.schema.fields)[-1].name))

    def _types(self) -> Column:
        """Return a map from columns to types."""
        types = {field.name: field.dataType.simpleString() for field in self.schema}
        return F.from_json(F.lit(json.dumps(types)), "map<string,string>")


def _parse(text: Column, fields: Sequence[StructField]) -> Column:
    return F.from_json(text, StructType([*fields, StructField(_MISFIT, StringType())]), _WITH_MISFIT)


def _json_type(text: Column, member: Column) -> Column:
    """Return `string`, `number`, `boolean`, `object` or `array`. Return `value` if there are no variants."""
    if not HAS_VARIANTS:
        return F.lit("value")
    members = F.try_parse_json(text).cast("map<string,variant>")
    kind = F.lower(F.regexp_extract(F.schema_of_variant(F.element_at(members, member)), "^[A-Z]+", 0))
    return F.coalesce(F.when(kind.isin(*_NUMBERS), F.lit("number")).otherwise(kind), F.lit("value"))
