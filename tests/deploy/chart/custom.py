"""Schemas of the custom resources that the chart uses, with only these members, so that a wrong member is found."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships none

Schema = dict[str, Any]


def _object(required: list[str], **members: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": members}


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


TEXT: Schema = {"type": "string", "minLength": 1}
DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
RELABELINGS = _list({"type": "object", "required": ["action"]})

SPECS: dict[tuple[str, str], Schema] = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _object(
        ["selector", "endpoints"],
        jobLabel=TEXT,
        selector=_object(["matchLabels"], matchLabels=TEXTS),
        namespaceSelector=_object(["matchNames"], matchNames=_list(TEXT)),
        endpoints=_list(
            _object(
                ["port"],
                port=TEXT,
                path={"type": "string", "pattern": "^/"},
                interval=DURATION,
                scrapeTimeout=DURATION,
                authorization=_object(
                    ["credentials"], type={"const": "Bearer"}, credentials=_object(["name", "key"], name=TEXT, key=TEXT)
                ),
                relabelings=RELABELINGS,
                metricRelabelings=RELABELINGS,
            )
        ),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): _object(
        ["groups"],
        groups=_list(
            _object(
                ["name", "rules"],
                name=TEXT,
                rules=_list(
                    _object(
                        ["alert", "expr"],
                        alert=TEXT,
                        expr=TEXT,
                        labels=TEXTS,
                        annotations=TEXTS,
                        **{"for": DURATION},
                    )
                ),
            )
        ),
    ),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _object(
        ["parentRefs", "rules"],
        parentRefs=_list(_object(["name"], name=TEXT, namespace=TEXT, sectionName=TEXT, port={"type": "integer"})),
        hostnames=_list(TEXT),
        rules=_list(
            _object(
                ["backendRefs"],
                matches=_list(
                    _object(
                        ["path"],
                        path=_object(
                            ["type", "value"], type={"const": "PathPrefix"}, value={"type": "string", "pattern": "^/"}
                        ),
                    )
                ),
                timeouts=_object(["request"], request=DURATION),
                backendRefs=_list(_object(["name", "port"], name=TEXT, port={"type": "integer"})),
            )
        ),
    ),
}


def check(one: dict[str, Any]) -> bool:
    """Validate a custom resource and return True, or return False for other kinds. Raise ValidationError if invalid."""
    if (schema := SPECS.get((one["apiVersion"], one["kind"]))) is None:
        return False
    whole = _object(["apiVersion", "kind", "metadata", "spec"], apiVersion=TEXT, kind=TEXT, metadata={}, spec=schema)
    jsonschema.validate(one, whole)
    return True
