"""HTTP/1.1 on a connection: what cannot be read as a request is answered as a problem too.

Knows nothing of the application: such a request never reaches it.
"""

import uuid

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .errors import MalformedRequest
from .wire import problems


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, whose own refusal would be plain text."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP and end the connection."""
        body = problems.encode(MalformedRequest("the request is not HTTP/1.1 that can be read"))
        head = [
            b"HTTP/1.1 400 Bad Request",
            b"content-type: " + problems.MEDIA_TYPE.encode(),
            b"content-length: %d" % len(body),
            b"x-request-id: " + uuid.uuid4().hex.encode(),
            b"connection: close",
        ]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
        self.transport.close()
