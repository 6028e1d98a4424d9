"""Builds the SQL for the key columns of one table.

Statements pass keys as one array for each key column. Within a statement, `k0`, `k1`, … are the parts of a key.
"""

from .schema import Column, quoted


class KeySql:
    """The SQL for the keys of one table, whose alias in all statements is `t`."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.names = [quoted(column.name) for column in columns]
        self.parts = [f"k{index}" for index in range(len(columns))]
        self.arrays = [_array_parameter(column, index + 1) for index, column in enumerate(columns)]

    def rows_sent(self) -> str:
        """Return the table expression `u` of the keys sent."""
        return f"unnest({', '.join(self.arrays)}) AS u({', '.join(self.parts)})"

    def order(self, alias: str) -> str:
        """Return the sort expressions for the key columns of a table: the order of row locks in all statements."""
        return self._bytewise([f"{alias}.{name}" for name in self.names])

    def order_sent(self) -> str:
        """Return the sort expressions for the keys sent."""
        return self._bytewise([f"u.{part}" for part in self.parts])

    def equal_parts(self, alias: str) -> str:
        """Return the condition that a row of `t` has the key whose parts another row contains as `k0`, `k1`, …"""
        return _equal(self.names, alias, self.parts)

    def equal_columns(self, alias: str) -> str:
        """Return the condition that a row of `t` has the same key columns as a row of another table."""
        return _equal(self.names, alias, self.names)

    def selection(self) -> tuple[str, str]:
        """Return the join and the condition that select the rows with the keys sent."""
        if len(self.columns) == 1:
            return "", f"t.{self.names[0]} = ANY({self.arrays[0]})"
        return f" JOIN {self.rows_sent()} ON {self.equal_parts('u')}", "true"

    def outputs(self) -> list[str]:
        """Return the key columns as the driver receives them."""
        return [_output(f"t.{name}", column) for name, column in zip(self.names, self.columns, strict=True)]

    def named_outputs(self) -> str:
        """Return the key columns as the driver receives them, named `k0`, `k1`, …"""
        return ", ".join(f"{output} AS {part}" for output, part in zip(self.outputs(), self.parts, strict=True))

    def named_columns(self) -> str:
        """Return the key columns, named `k0`, `k1`, …"""
        return ", ".join(f"t.{name} AS {part}" for name, part in zip(self.names, self.parts, strict=True))

    def _bytewise(self, expressions: list[str]) -> str:
        return ", ".join(map(bytewise, expressions, self.columns))


def bytewise(expression: str, key: Column) -> str:
    """Return SQL for a key part that sorts by its bytes or by its number."""
    return f'{expression} COLLATE "C"' if key.type in ("text", "varchar") else expression


def key_parameter(number: int, key: Column) -> str:
    """Return SQL for a key part passed as a parameter."""
    if key.type == "uuid":
        return f"(${number}::text)::uuid"
    return f"${number}::{_parameter_type(key)}"


def _array_parameter(key: Column, number: int) -> str:
    if key.type == "uuid":
        return f"(${number}::text[])::uuid[]"
    return f"${number}::{_parameter_type(key)}[]"


def _output(expression: str, key: Column) -> str:
    return f"{expression}::{_parameter_type(key)}"


def _parameter_type(key: Column) -> str:
    return "bigint" if key.type.startswith("int") else "text"


def _equal(names: list[str], alias: str, others: list[str]) -> str:
    return " AND ".join(f"t.{name} = {alias}.{other}" for name, other in zip(names, others, strict=True))
