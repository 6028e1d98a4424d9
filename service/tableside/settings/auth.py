"""Reads the settings of authentication, including the file with tokens that they may refer to."""

from collections.abc import Mapping
from typing import Any

from pydantic import RootModel

from ..auth import AuthSettings, Tokens
from .faults import Fault, FaultCollector, SettingsError
from .yaml_file import parse_yaml, read_text


def read_auth(entry: object, faults: FaultCollector) -> AuthSettings | None:
    """Return the authentication settings, including the tokens of `tokens_file`, or None if they are invalid."""
    given = entry if isinstance(entry, dict) else {}
    auth = faults.validate(AuthSettings, entry, "auth")
    if isinstance(entry, dict) and not any(given.get(member) for member in ("tokens", "tokens_file", "issuers")):
        faults.add("auth", "needs tokens, a tokens_file or issuers: without them every request is rejected")
    listed = _read_tokens_file(given.get("tokens_file"), faults)
    more = faults.validate(_TokensFile, listed, "auth.tokens_file")
    _check_unique({"auth.tokens": given.get("tokens"), "auth.tokens_file": listed}, faults)
    if auth:
        _check_audiences(auth, faults)
    return auth.model_copy(update={"tokens": auth.tokens + more.root}) if auth and more else None


class _TokensFile(RootModel[Tokens], frozen=True):
    pass


def _read_tokens_file(file: object, faults: FaultCollector) -> list[Any]:
    """Return the entries of the file with tokens. If it cannot be read, return an empty list and add a fault."""
    if not isinstance(file, str):
        return []
    found: list[Fault] = []
    try:
        listed = parse_yaml(read_text(file, "auth.tokens_file"), "auth.tokens_file", found)
    except SettingsError as error:
        found, listed = error.faults, []
    for fault in found:
        faults.add(fault.path, fault.message)
    if not isinstance(listed, list):
        faults.add("auth.tokens_file", f"{file} is not a YAML list of tokens")
        return []
    return listed


def _check_unique(lists: Mapping[str, object], faults: FaultCollector) -> None:
    """Check that no two tokens have the same name, and no two names have the same token."""
    first: dict[tuple[str, str], str] = {}
    for path, tokens in lists.items():
        for index, token in enumerate(tokens if isinstance(tokens, list) else []):
            for member in ("name", "sha256"):
                given = token.get(member) if isinstance(token, dict) else None
                text = given.lower() if isinstance(given, str) and member == "sha256" else given
                where = f"{path}.{index}.{member}"
                if isinstance(text, str) and first.setdefault((member, text), where) != where:
                    faults.add(where, f"is the same as {first[member, text]}")


def _check_audiences(auth: AuthSettings, faults: FaultCollector) -> None:
    """Check that each pair of issuer and audience is configured once, so that one set of rules applies to a token."""
    first: dict[tuple[str, str], str] = {}
    for index, issuer in enumerate(auth.issuers):
        for audience in issuer.audience:
            where = f"auth.issuers.{index}.audience"
            if (before := first.setdefault((issuer.issuer, audience), where)) != where:
                faults.add(where, f"repeats an audience of {before}, which has the same issuer")
