"""What the pages of the documentation are sent with: they run their own scripts, load their own files, and no more."""

import base64
import hashlib
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATHS = ("/docs", "/docs/oauth2-redirect")

_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class Guarded:
    """Wraps the framework's application, for the sake of these pages alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add to a page what a browser is to allow it."""
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        started: list[Message] = []

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
                return
            for start in started:
                start["headers"] = [*start["headers"], *_headers(message.get("body", b""))]
                await send(start)
            started.clear()
            await send(message)

        await self._app(scope, receive, with_policy)


def policy(page: bytes) -> str:
    """Return what a page may do: its scripts are those that stand in it now, and files from here."""
    digests = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _SCRIPT.findall(page)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in digests)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )


def _headers(page: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-security-policy", policy(page).encode()), (b"referrer-policy", b"no-referrer")]
