"""Searches for a secret in all its encodings, in texts, in files and in the command lines of all processes."""

import base64
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np

PIECE = 8
"""The number of characters of a secret that count as a leak."""
BINARY_PIECE = 12
"""The same for its base64 or hexadecimal form. Shorter pieces may occur by chance."""


def new_secret() -> str:
    """Return a unique secret, with characters that are escaped in URLs and in JSON."""
    return "".join(f"{secrets.token_hex(PIECE)}{special}" for special in '+/"<&=') + secrets.token_hex(PIECE)


class Search:
    """A search for one secret."""

    def __init__(self, secret: str) -> None:
        self._pieces = frozenset(_pieces(secret))
        self._heads = np.frombuffer(b"".join(piece[:PIECE] for piece in self._pieces), "<u8")
        self._begins = np.zeros(2**16, bool)
        self._begins[self._heads.astype(np.uint16)] = True

    def leaks(self, content: bytes) -> bool:
        """Return whether any piece of the secret is in it."""
        return self._has_a_head(content) and any(piece in content for piece in self._pieces)

    def _has_a_head(self, content: bytes) -> bool:
        """Return whether eight bytes in it begin a piece, which is much faster than a search for every piece."""
        for at in range(min(PIECE, len(content) - PIECE + 1)):
            words = np.frombuffer(content, "<u8", (len(content) - at) // PIECE, at)
            if np.isin(words[self._begins[words.astype(np.uint16)]], self._heads).any():
                return True
        return False

    def texts(self, texts: Mapping[str, str]) -> list[str]:
        """Return the names of the texts that contain a piece of it."""
        return [name for name, text in texts.items() if self.leaks(text.encode())]

    def files(self, folders: Iterable[Path]) -> list[Path]:
        """Return the files below the folders that contain a piece of it."""
        return [file for file in _files(folders) if self.leaks(file.read_bytes())]


def command_lines() -> dict[str, str]:
    """Return the command line of every process by its id, without zombies."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # The process has ended.
            continue
        if line:
            found[process.name] = line
    return found


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for place, _, names in os.walk(folder):
            yield from (path for path in (Path(place, name) for name in names) if path.is_file())


def _pieces(secret: str) -> Iterator[bytes]:
    yield from _windows(secret, PIECE)
    yield from _windows(quote(secret, safe=""), PIECE)
    yield from _windows(secret.encode().hex(), 2 * BINARY_PIECE)
    for offset in range(3):  # The base64 form depends on the position of the secret in a group of three bytes.
        cut = secret.encode()[offset:]
        whole = cut[: len(cut) // 3 * 3]
        yield from _windows(base64.b64encode(whole).decode(), BINARY_PIECE)
        yield from _windows(base64.urlsafe_b64encode(whole).decode(), BINARY_PIECE)


def _windows(text: str, length: int) -> Iterator[bytes]:
    return (text[start : start + length].encode() for start in range(len(text) - length + 1))
