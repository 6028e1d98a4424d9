"""Reads who may ask: the tokens of the configuration and those of a file of their own, together."""

from collections.abc import Mapping
from typing import Any

from pydantic import RootModel

from ..auth import AuthSettings, Tokens
from .faults import Faults, SettingsError
from .yaml_file import read


class _TokensFile(RootModel[Tokens], frozen=True):
    pass


def read_auth(entry: object, faults: Faults) -> AuthSettings | None:
    """Return who may ask, with the tokens of the file among the others; None, and its faults, where it has some."""
    given = entry if isinstance(entry, dict) else {}
    auth = faults.model(AuthSettings, entry, "auth")
    if isinstance(entry, dict) and not any(given.get(member) for member in ("tokens", "tokens_file", "issuers")):
        faults.add("auth", "has tokens, a tokens_file or issuers: without them nobody could ask anything")
    listed = _listed(given.get("tokens_file"), faults)
    more = faults.model(_TokensFile, listed, "auth.tokens_file")
    _check_distinct({"auth.tokens": given.get("tokens"), "auth.tokens_file": listed}, faults)
    if auth:
        _check_audiences(auth, faults)
    return auth.model_copy(update={"tokens": auth.tokens + more.root}) if auth and more else None


def _listed(file: object, faults: Faults) -> list[Any]:
    """Return what the file of tokens lists."""
    if not isinstance(file, str):
        return []
    try:
        listed = read(file, "auth.tokens_file")
    except SettingsError as error:
        for fault in error.faults:
            faults.add(fault.path, fault.message)
        return []
    if not isinstance(listed, list):
        faults.add("auth.tokens_file", f"{file} is not a YAML list of tokens")
        return []
    return listed


def _check_distinct(lists: Mapping[str, object], faults: Faults) -> None:
    """See to it that one token has one name, and one name one token."""
    first: dict[tuple[str, str], str] = {}
    for path, tokens in lists.items():
        for index, token in enumerate(tokens if isinstance(tokens, list) else []):
            for member in ("name", "sha256"):
                given = token.get(member) if isinstance(token, dict) else None
                text = given.lower() if isinstance(given, str) and member == "sha256" else given
                where = f"{path}.{index}.{member}"
                if isinstance(text, str) and first.setdefault((member, text), where) != where:
                    faults.add(where, f"is the same as {first[member, text]}")


def _check_audiences(auth: AuthSettings, faults: Faults) -> None:
    """See to it that a token of one issuer for one audience is taken in one way."""
    first: dict[tuple[str, str], str] = {}
    for index, issuer in enumerate(auth.issuers):
        for audience in issuer.audience:
            where = f"auth.issuers.{index}.audience"
            if (before := first.setdefault((issuer.issuer, audience), where)) != where:
                faults.add(where, f"has one in common with {before}, of the same issuer")
