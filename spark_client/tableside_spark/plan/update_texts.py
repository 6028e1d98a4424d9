"""JSON text of updates: one update, or an array of updates. The texts of a key's rows become one array."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tableside_spark.plan.json_columns import Check

_SPACES = " \t\n\r"
"""The characters that JSON allows around a value."""


def text_checks(update: Column) -> list[Check]:
    """Return the conditions for texts that would change the array, with the problem that each of them means."""
    documents = F.from_json(F.concat(F.lit("["), update, F.lit("]")), "array<string>")
    return [
        (_trimmed(update) == "", "the update is an empty text"),
        (F.coalesce(F.size(documents), F.lit(-1)) != 1, "the update is not one JSON document"),
    ]


def elements(text: Column) -> Column:
    """Return an update, or the elements of an array of updates, or null for an empty array."""
    trimmed = _trimmed(text)
    inner = F.nullif(_trimmed(trimmed.substr(F.lit(2), F.length(trimmed) - 2)), F.lit(""))
    return F.when(F.startswith(trimmed, F.lit("[")), inner).otherwise(text)


def _trimmed(text: Column) -> Column:
    return F.btrim(text, F.lit(_SPACES))
