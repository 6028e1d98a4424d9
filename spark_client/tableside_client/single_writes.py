"""Single writes as PUT, PATCH and DELETE requests."""

from tableside_client.calls import Request
from tableside_client.json_batch import Operation
from tableside_client.paths import JSON, given, json_bytes, record_path, write_headers

_METHODS = {"put": "PUT", "update": "PATCH", "delete": "DELETE"}


def single_write(table: str, operation: Operation) -> Request | None:
    """Return the request of a write, None if a batch should contain its key, its token or its etag."""
    members = operation.document
    token = members.get("token") and (members["token"]["writer"], members["token"]["sequence"])
    path = record_path(table, members["key"], token and token[0], members.get("if_match"))
    if path is None:
        return None
    headers = write_headers(members.get("if_match"), token, members.get("return", False))
    op, params, content = members["op"], {}, None
    if op == "put":
        content, params = json_bytes(members["value"]), given(ttl_s=members.get("ttl_s"))
        headers |= {"If-None-Match": "*"} if members.get("if_absent") else {}
    elif op == "update":
        content = json_bytes({name: members[name] for name in ("update", "default", "ttl_s") if name in members})
    if content is not None:
        headers["Content-Type"] = JSON
    return Request(_METHODS[op], path, table, params, headers, content, repeatable=operation.repeatable)
