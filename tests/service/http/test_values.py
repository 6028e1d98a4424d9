"""Values: which content a record preserves, and which values are rejected."""

import pytest

from service.http.api_client import ApiClient, check_refused, fresh, path_of

T = "records"


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b'{"n":1.0}', b'{"n":1}'),
        (b'{"n":-0.0}', b'{"n":0}'),
        (b'{"n":1e3}', b'{"n":1000}'),
        (b'{"n":9223372036854775807}', b'{"n":9223372036854775807}'),
        (b'{"n":-9223372036854775808}', b'{"n":-9223372036854775808}'),
        (b'{"n":-9223372036854775808.0}', b'{"n":-9223372036854775808}'),
        (b'{"n":[0.1,1e+20,5e-324,1.7976931348623157e+308]}', b'{"n":[0.1,1e+20,5e-324,1.7976931348623157e+308]}'),
        (b'{"n":1e-400}', b'{"n":0}'),
        (b'{"a":1,"b":{"c":1,"c":2},"a":3}', b'{"a":3,"b":{"c":2}}'),
        (b'{"a":null,"b":true}', b'{"a":null,"b":true}'),
        (b'{"a":{"_ts":1}}', b'{"a":{"_ts":1}}'),
        (b'{"a":"\\u00fc\\ud83d\\ude00"}', '{"a":"ü😀"}'.encode()),
        (b" {} ", b"{}"),
        (b'{"a":' * 29 + b"{}" + b"}" * 29, b'{"a":' * 29 + b"{}" + b"}" * 29),
    ],
)
def test_a_value_is_preserved(api: ApiClient, sent: bytes, read: bytes) -> None:
    key = fresh()
    response = api.client.put(path_of(T, key), content=sent)
    assert response.status_code == 204, response.text
    assert api.get(T, key).content == read


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"n":9223372036854775808}', b'{"n":-9223372036854775809}', b'{"n":[{"m":9223372036854775808}]}'),
        *(b'{"n":' + b"9" * 300 + b"}", b'{"a":[{"b":"x\\u0000y"}]}', b'{"a\\u0000":1}', b'{"":1}', b'{"a":[{"":{}}]}'),
        *(b'{"_ts":1}', b'{"\\u005fts":1}', b'{"_tsanything":1}', b"[]", b"1", b'"a"', b"null", b"true"),
        *(b'{"a":' * 30 + b"{}" + b"}" * 30, b'{"a":' + b"[" * 30 + b"]" * 30 + b"}"),
    ],
)
def test_an_invalid_value_is_rejected(api: ApiClient, body: bytes) -> None:
    key = fresh()
    check_refused(api.client.put(path_of(T, key), content=body), 422, "invalid_operation")
    check_refused(api.get(T, key), 404, "record_not_found")
