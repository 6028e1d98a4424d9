"""The Content-Security-Policy of the documentation pages, and the files of these pages."""

import base64
import hashlib
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATHS = ("/docs", "/docs/oauth2-redirect")

_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


class ContentSecurityPolicy:
    """ASGI middleware that adds a policy to the documentation pages: it allows only their own scripts and files."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and add the policy if the request is for a documentation page."""
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


class WholeFiles:
    """ASGI middleware that ignores `Range`, because Starlette's errors for it are not problem details.

    It adds the `root_path` to the path, which Starlette needs to find files.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application without the header `Range`, and drop its header `Accept-Ranges`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_whole(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(name, value) for name, value in message["headers"] if name != b"accept-ranges"]
            await send(message)

        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        path = scope["root_path"] + scope["path"]
        await self._app({**scope, "path": path, "headers": headers}, receive, send_whole)


def policy(page: bytes) -> str:
    """Return the policy of a page. It allows the page's inline scripts, by their digest, and files of this service."""
    digests = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _SCRIPT.findall(page)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in digests)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )


def _headers(page: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-security-policy", policy(page).encode()), (b"referrer-policy", b"no-referrer")]
