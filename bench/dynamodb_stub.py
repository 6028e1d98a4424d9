"""A stub of DynamoDB that responds immediately with a fixed record, so that only its clients are measured.

`python -m bench.dynamodb_stub PORT`. Every table exists. Its key is the string attribute that the service requests.
"""

import asyncio
import sys
from typing import cast

import orjson
import uvloop

ITEM = {"manufacturer": {"S": "BOEING"}, "model": {"S": "737-824"}, "seats": {"N": "149"}, "engines": {"N": "2"}}

KEY = "_ts_key"


class Stub(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._read = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is not a subclass of it

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].decode("latin-1").lower()
            begin = end + 4
            size = int(head.partition("content-length:")[2].partition("\r\n")[0])
            if len(self._read) < begin + size:
                return
            body, self._read = self._read[begin : begin + size], self._read[begin + size :]
            verb = head.partition("x-amz-target:")[2].partition("\r\n")[0].rpartition(".")[2].strip()
            answer = orjson.dumps(_answer(verb, orjson.loads(body)))
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n%b"
                % (len(answer), answer)
            )


def _answer(verb: str, asked: dict[str, object]) -> dict[str, object]:
    match verb:
        case "getitem":
            return {"Item": {**_key(asked["Key"]), **ITEM}}
        case "batchgetitem":
            return {"Responses": _found(asked["RequestItems"]), "UnprocessedKeys": {}}
        case "describetable":
            key = {"AttributeName": KEY, "AttributeType": "S"}
            schema = {"AttributeName": KEY, "KeyType": "HASH"}
            table = {"TableName": asked["TableName"], "TableStatus": "ACTIVE"}
            return {"Table": {**table, "AttributeDefinitions": [key], "KeySchema": [schema]}}
        case "describetimetolive":
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        case "listtables":
            return {"TableNames": []}
    raise ValueError(f"{verb} is not answered here")


def _key(key: object) -> dict[str, object]:
    assert isinstance(key, dict)
    return key


def _found(tables: object) -> dict[str, list[dict[str, object]]]:
    assert isinstance(tables, dict)
    return {name: [{**key, **ITEM} for key in asked["Keys"]] for name, asked in tables.items()}


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
