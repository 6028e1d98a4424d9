"""Values of CSV and Parquet files as JSON values."""

import decimal
from datetime import date, time
from typing import Any

DECIMAL_DIGITS_MAX = 15


def to_json(value: Any) -> Any:
    """Convert a value to JSON types: times to ISO 8601, and decimals to numbers if a double is exact enough.

    Raise ValueError for decimals with too many digits, numbers that are not finite, and bytes.
    """
    match value:
        case dict():
            return {name: to_json(member) for name, member in value.items()}
        case list():
            return [to_json(element) for element in value]
        case date() | time():
            return value.isoformat()
        case decimal.Decimal():
            if len(value.as_tuple().digits) > DECIMAL_DIGITS_MAX:
                raise ValueError(f"a decimal has more than {DECIMAL_DIGITS_MAX} digits")
            return float(value)
        case float() if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("a number is not finite")
        case bytes():
            raise ValueError("JSON cannot represent bytes")
    return value
