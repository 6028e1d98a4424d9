"""The OpenAPI document is valid, describes exactly the routes, and agrees with the responses of the service."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from starlette.routing import Route

from support.running import Service, running
from tableside.app import create_app
from tableside.core.update_operators import OPERATORS
from tableside.http import openapi
from tableside.http.wire.request_headers import parse_idempotency_key, parse_token
from tableside.settings import validate

pytestmark = pytest.mark.server
JSON, ARROW, PROBLEM = "application/json", "application/vnd.apache.arrow.stream", "application/problem+json"
CONFIG = """
stores:
  local: {kind: memory}
  other: {kind: memory}
  shards: {kind: partitioned, partitions: [local, other]}
tables:
  fuzzed: {store: local, generations: true}
  spread: {store: shards}
"""

NOT_DESCRIBED = {"/", "/static-offline-docs/{file}"}
"""Routes for browsers: the redirect to a page, and the files of the documentation page."""

DOCUMENT: dict[str, Any] = openapi("1.2.3")


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on the memory store with an ordinary table and a partitioned one."""
    directory = tmp_path_factory.mktemp("fuzzed")
    config = directory / "tableside.yaml"
    config.write_text(CONFIG)
    with running(directory, config) as started:
        yield started


# The document itself


def test_the_document_is_legal_openapi() -> None:
    OPENAPI_31_VALIDATOR.validate(DOCUMENT)


def test_every_schema_is_valid_and_accepts_its_examples() -> None:
    assert DOCUMENT["components"]["schemas"]
    for name, schema in DOCUMENT["components"]["schemas"].items():
        jsonschema_rs.meta.validate(schema)
        validator = validator_of(f"#/components/schemas/{name}")
        for example in schema.get("examples", []):
            validator.validate(example)


def test_every_link_names_an_operation_and_its_parameters() -> None:
    operations = {operation["operationId"]: (path, operation) for path, _, operation in described()}
    for _, _, operation in described():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                path, target = operations[link["operationId"]]
                known = {parameter["name"] for parameter in parameters_of(path, target)}
                assert {name.rpartition(".")[2] for name in link["parameters"]} <= known


def test_operations_have_unique_names_and_summaries() -> None:
    names = [operation["operationId"] for _, _, operation in described()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for _, _, operation in described())


def test_generators_of_clients_understand_every_schema() -> None:
    """Generators drop operations and responses whose schemas they cannot represent."""
    for schema in nested(DOCUMENT):
        assert schema.keys().isdisjoint({"const", "anyOf", "allOf", "not"}), schema
        assert "enum" not in schema or "type" in schema, schema
        if "oneOf" in schema and "discriminator" not in schema:
            assert all("type" in one or "$ref" in one for one in schema["oneOf"]), schema


def test_every_error_is_a_problem_and_every_response_has_a_request_id() -> None:
    for _, method, operation in described():
        for status, answer in operation["responses"].items():
            assert "X-Request-Id" in answer["headers"]
            if int(status) >= 400 and method != "head":
                assert answer["content"] == {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                assert re.match(r"`\w+`: ", answer["description"])


def test_every_operator_is_described() -> None:
    assert DOCUMENT["components"]["schemas"]["Changes"]["properties"].keys() == OPERATORS.keys()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Tableside-Token", '" a writer /9223372036854775807'),
        ("Tableside-Token", "\xe4\xf6\t\xfc" * 32 + "/0000000000000000001"),
        ("Idempotency-Key", "x y\\" + "z" * 124),
        ("Idempotency-Key", '"' + r"\"" * 64 + r"\\" * 63 + ' "'),
    ],
)
def test_the_pattern_of_a_token_accepts_what_the_service_accepts(name: str, text: str) -> None:
    path = "/v1/tables/{table}/records/{key}"
    [parameter] = [one for one in parameters_of(path, DOCUMENT["paths"][path]["put"]) if one["name"] == name]
    assert re.search(parameter["schema"]["pattern"], text)
    assert (parse_token if name == "Tableside-Token" else parse_idempotency_key)(text) is not None


def test_every_route_is_described_and_every_path_is_a_route() -> None:
    app = create_app(validate({"stores": {"local": {"kind": "memory"}}, "console": {"enabled": False}}))
    assert routed(app) == {(path, method.upper()) for path, method, _ in described()}


def test_the_service_serves_the_document_and_its_version(fuzzed: Service) -> None:
    served = httpx.get(f"{fuzzed.url}/openapi.json").json()
    assert served == openapi(served["info"]["version"])


def test_the_page_of_documentation_needs_nothing_from_elsewhere(fuzzed: Service) -> None:
    page = httpx.get(f"{fuzzed.url}/docs")
    assert page.status_code == 200
    addresses = re.findall(r"""(?:src|href|url)\s*[=:]\s*["']([^"']+)""", page.text)
    assert len(addresses) >= 4
    for address in addresses:
        assert re.match("/[^/]", address)
        assert httpx.get(fuzzed.url + address).status_code == 200
    assert "//" not in re.sub("<!--.*?-->|//.*", "", page.text.replace("://", "//"))
    assert "@import" not in httpx.get(f"{fuzzed.url}/static-offline-docs/swagger-ui.css").text


# The service against its document


CHECKS = [
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"),
    *("response_headers_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance"),
    *("missing_required_header", "ensure_resource_availability", "documented_error_code"),
]


@schemathesis.check
def documented_error_code(context: Any, response: Any, case: Any) -> None:
    """Check that the description of an error's status lists its code."""
    documented = case.operation.definition.raw["responses"].get(str(response.status_code))
    if response.status_code >= 400 and documented is not None and response.content:
        assert response.json()["status"] == response.status_code
        assert f"`{response.json()['code']}`: " in documented["description"]


def test_random_requests_get_documented_responses(fuzzed: Service, full: bool) -> None:
    """Send examples, boundary values, random and invalid data over HTTP, and follow the links."""
    seen = checked_run(loaded(fuzzed, full))
    assert {status for _, status in seen} >= {200, 204, 304, 400, 404, 405, 412, 415, 422}
    assert seen[JSON, 200] > 100


@pytest.mark.daily
def test_random_requests_to_a_partitioned_table_get_documented_responses(fuzzed: Service, full: bool) -> None:
    seen = checked_run(loaded(fuzzed, full, table="spread"))
    assert {status for _, status in seen} >= {200, 204, 400, 404, 405, 412, 415, 422}
    assert 501 not in {status for _, status in seen}


def checked_run(schema: Any) -> Counter[tuple[str, int]]:
    """Send the requests that the schema generates, and count the responses by media type and status."""
    faults: list[str] = []
    seen = Counter[tuple[str, int]]()
    for event in from_schema(schema).execute():
        assert not isinstance(event, (events.NonFatalError, events.FatalError)), event
        if isinstance(event, events.ScenarioFinished):
            faults += faults_of(event)
            seen.update(answered(event))
    assert not faults, "\n\n".join(faults)
    return seen


def loaded(service: Service, full: bool, table: str = "fuzzed") -> Any:
    document = httpx.get(f"{service.url}/openapi.json").json()
    for parameter in nested(document):
        if parameter.get("name") == "table" and parameter.get("in") == "path":
            # Random table names would all get the same response.
            parameter |= {"schema": {"enum": [table]}, "example": table}
    partitioned = "partitions" in httpx.get(f"{service.url}/v1/tables/{table}").json()
    if not partitioned:
        # Any value gets the same response: the table has no partitions.
        for path in document["paths"].values():
            for operation in path.values():
                if isinstance(operation, dict):
                    known = operation.get("parameters", [])
                    operation["parameters"] = [one for one in known if one.get("name") != "partitions"]
    else:
        # A partitioned table has no generations: every request gets the same response.
        document["paths"] = {path: one for path, one in document["paths"].items() if "/generations" not in path}
    # Random bytes are no Arrow stream.
    del document["paths"]["/v1/tables/{table}/batch"]["post"]["requestBody"]["content"][ARROW]
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(settings(partitioned, full)))
    schema.config.base_url = service.url
    return schema


def settings(partitioned: bool, full: bool) -> dict[str, Any]:
    # With fewer examples for a partitioned table, no request gets the status 304.
    examples, usual = (20, 20) if partitioned else (60, 15)
    # A table can reject requests that the schema allows, so these statuses also count as acceptance.
    acceptance = {"enabled": True, "expected-statuses": ["2xx", "3xx", 404, 412, 422, 504]}
    # An invalid operation in a batch is rejected in its result, and a cursor is valid only for its own scan.
    exceptions = [
        {"include-operation-id": "apply_batch", "checks": off("negative_data_rejection", "positive_data_acceptance")},
        {"include-operation-id": "scan_records", "checks": off("positive_data_acceptance")},
        # The document cannot say that exactly one of three parameters is needed.
        {"include-operation-id": "delete_records", "checks": off("positive_data_acceptance")},
    ]
    checks = {"enabled": False, **{name: {"enabled": True} for name in CHECKS}}
    if partitioned:
        # A write may go to several partitions or none, a get to one: the link between them cannot name it.
        checks |= off("ensure_resource_availability")
    return {
        "seed": 20130101,
        "workers": 1,
        "continue-on-failure": True,
        "generation": {
            "max-examples": examples if full else usual,
            "database": "none",
            "allow-x00": False,
            "no-shrink": True,
        },
        "checks": checks | {"positive_data_acceptance": acceptance},
        "operations": exceptions,
        # The boundary values that schemathesis considers valid do not always match the patterns of headers.
        "phases": {"coverage": {"checks": off("positive_data_acceptance")}},
    }


def off(*checks: str) -> dict[str, Any]:
    return {check: {"enabled": False} for check in checks}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if case.headers and {"Tableside-Token", "Idempotency-Key"} <= set(case.headers):
        # Only the document's prose states that these headers exclude each other.
        del case.headers["Tableside-Token" if len(case.headers["Idempotency-Key"]) % 2 else "Idempotency-Key"]
    if case.query and isinstance(case.body, dict) and case.meta.generation.mode.is_positive:
        # Only the document's prose states that an update has this in its query or in its body.
        case.body.pop("ttl_s" if "ttl_s" in case.query else "", None)
    if case.operation.definition.raw.get("operationId") == "apply_batch":
        case.query = {}  # Only the document's prose states that these parameters are for Arrow.


def faults_of(event: events.ScenarioFinished) -> Iterator[str]:
    for case, checks in event.recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                failure = check.failure_info.failure
                yield f"{request_and_response(event.recorder.interactions[case])}\n{type(failure).__name__}: {failure}"


def request_and_response(interaction: Any) -> str:
    request, response = interaction.request, interaction.response
    sent = f"{request.method} {request.uri:.300}\n{request.headers}\n{request.body!r:.300}"
    return sent if response is None else f"{sent}\n{response.status_code} {response.content!r:.300}"


def answered(event: events.ScenarioFinished) -> Iterator[tuple[str, int]]:
    for interaction in event.recorder.interactions.values():
        if interaction.response is not None:
            yield interaction.request.headers.get("Content-Type", [""])[0], interaction.response.status_code


# Helpers


def described() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


def nested(found: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON document except for examples, and for names of members, which generators ignore."""
    if isinstance(found, dict):
        yield found
    parts = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for name, part in parts:
        if name not in ("example", "examples", "propertyNames"):
            yield from nested(part)


def parameters_of(path: str, operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for parameter in [*DOCUMENT["paths"][path]["parameters"], *operation.get("parameters", [])]:
        name = parameter.get("$ref", "").rpartition("/")[2]
        yield DOCUMENT["components"]["parameters"][name] if name else parameter


def routed(app: FastAPI) -> set[tuple[str, str]]:
    """Return the application's paths and methods."""
    found = set()
    for route in app.routes:
        if isinstance(route, Route) and route.path not in NOT_DESCRIBED:
            path = route.path.replace(":path}", "}")
            found |= {(path, method) for method in route.methods or ()}
    return found


def validator_of(reference: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": reference, "components": DOCUMENT["components"]})
