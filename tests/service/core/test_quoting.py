"""Names from requests in error messages."""

import pytest

from tableside.core.errors import NAME_CHARACTERS_MAX, NAMES_MAX, quoted, quoted_list


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a.b", "`a.b`"),
        ("größe", "`größe`"),
        ("a\nb\x7f\u202e", "`a\\nb\\x7f\\u202e`"),
        ("x" * 80, f"`{'x' * 80}`"),
        ("x" * 81, f"`{'x' * 79}…`"),
        ("\0" * 10_000, "`" + "\\x00" * 79 + "…`"),
    ],
    ids=range(6),
)
def test_a_name_is_quoted_printable_and_of_limited_length(name: str, shown: str) -> None:
    assert quoted(name) == shown
    assert NAME_CHARACTERS_MAX == 80


def test_a_list_shows_the_first_names_and_counts_the_others() -> None:
    assert quoted_list(["a", "b"]) == "`a`, `b`"
    assert quoted_list([*"abcde"]) == "`a`, `b`, `c`, `d`, `e`"
    assert quoted_list([*"abcdefg"]) == "`a`, `b`, `c`, `d`, `e` and 2 more"
    assert NAMES_MAX == 5
