"""Check that a release is ready and responds to a caller. `helm test` runs this in a pod with the service's image.

It uses only the standard library. The environment variable URL is required. Optional ones are TABLESIDE_TOKEN, RECORD
(the path of a record), CALLER (set if a caller may list the tables) and CA (the file of a certificate authority).
"""

import json
import os
import ssl
import sys
import urllib.request
from urllib.error import HTTPError, URLError

WAIT_MAX_S = 20


def ask(path: str, token: str = "") -> object:
    """Return the decoded JSON of a response. Raise URLError if there is none, HTTPError if its status is an error."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(os.environ["URL"] + path, headers=headers)  # noqa: S310 - the chart's own URL
    with urllib.request.urlopen(request, timeout=WAIT_MAX_S, context=trusted()) as answer:  # noqa: S310
        return json.load(answer)


def trusted() -> ssl.SSLContext | None:
    """Return a TLS context that trusts the system's authorities and the one in CA, or None for plain HTTP."""
    if not os.environ["URL"].startswith("https:"):
        return None
    context = ssl.create_default_context()
    if os.path.exists(authority := os.environ.get("CA", "")):
        context.load_verify_locations(authority)
    return context


def main() -> int:
    """Send the requests and print each result. Return 1 at the first failure, 0 if all succeed."""
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
