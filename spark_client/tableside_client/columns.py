"""`col`: a column of a frame in an update."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a frame. In an update or a default, it stands for the value of each row."""

    name: str


def col(name: str) -> Column:
    """Name a column of a frame, for an update or a default of `update_frame`."""
    if not isinstance(name, str):
        raise TypeError(f"col takes the name of a column, not {type(name).__name__}")
    return Column(name)
