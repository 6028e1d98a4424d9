"""What `helm test` runs in a pod of the service's own image: is the release ready, and does it answer a caller?

Standard library only. It is told by variables: URL, and perhaps TABLESIDE_TOKEN, RECORD (the path of one) and CA.
"""

import json
import os
import ssl
import sys
import urllib.request
from urllib.error import HTTPError, URLError

WAIT_MAX_S = 20


def ask(path: str, token: str = "") -> object:
    """Return what the service answers. Raise URLError for what is no success."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(os.environ["URL"] + path, headers=headers)  # noqa: S310 - the chart's own URL
    with urllib.request.urlopen(request, timeout=WAIT_MAX_S, context=trusted()) as answer:  # noqa: S310
        return json.load(answer)


def trusted() -> ssl.SSLContext | None:
    """Return whom to trust, for TLS: beside the usual authorities the one that came with the certificate, if any."""
    if not os.environ["URL"].startswith("https:"):
        return None
    context = ssl.create_default_context()
    if os.path.exists(authority := os.environ.get("CA", "")):
        context.load_verify_locations(authority)
    return context


def main() -> int:
    """Ask, and say what came; 0 if all went well."""
    token, record = os.environ.get("TABLESIDE_TOKEN", ""), os.environ.get("RECORD", "")
    paths = ["/readyz", *(["/v1/tables"] if "CALLER" in os.environ else []), *([record] if record else [])]
    for path in paths:
        try:
            ask(path, "" if path == "/readyz" else token)
        except HTTPError as error:
            print(f"{path}: {error.code} {error.read(2000).decode(errors='replace')}")
            return 1
        except URLError as error:
            print(f"{path}: {error.reason}")
            return 1
        print(f"{path}: fine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
