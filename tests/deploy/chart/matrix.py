"""Random combinations of values, because there are too many to render all of them."""

import random
from typing import TypeAlias

from deploy.chart.rendering import BACKUP, REMOTE, Values, merged

ROWS = 40
FULL_ROWS = 160
SEED = 7

Choice: TypeAlias = "dict[str, Values]"

MEMORY: Values = {"config": {"stores": {"m": {"kind": "memory"}}}, "replicas": 1, "insecure": True}
TOKENS: Values = {
    "insecure": False,
    "config": {"auth": {"tokens_file": "/etc/tableside-secrets/tokens/tokens.yaml"}},
    "secrets": {"files": {"tokens": {"secretName": "tokens"}}, "env": {"PASSWORD": {"secretName": "db", "key": "pw"}}},
}
TLS: Values = {"tls": {"enabled": True, "secretName": "certificate"}}
PEER: Values = {"namespaceSelector": {"matchLabels": {"team": "spark"}}}

CHOICES: dict[str, Choice] = {
    "workload": {
        "remote": REMOTE,
        "rocksdb": BACKUP,
        "claim": merged(BACKUP, {"persistence": {"existingClaim": "old", "mountPath": "/data"}}),
        "memory": MEMORY,
    },
    "auth": {"none": {}, "tokens": TOKENS, "issuer": {"kubernetesIssuer": {"enabled": True, "audience": "here"}}},
    "tls": {"off": {}, "on": TLS, "mutual": merged(TLS, {"tls": {"clientCa": {"secretName": "authority"}}})},
    "scaling": {
        "none": {},
        "cpu": {"autoscaling": {"enabled": True, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}},
        "in flight": {"autoscaling": {"enabled": True, "cpuPercent": None, "inFlightRequests": 50}},
        "both": {"autoscaling": {"enabled": True, "inFlightRequests": 50}},
    },
    "budget": {
        "most": {},
        "least": {"podDisruptionBudget": {"minAvailable": "50%", "maxUnavailable": None}},
        "off": {"podDisruptionBudget": {"enabled": False}},
    },
    "network": {
        "open": {},
        "same": {"networkPolicy": {"enabled": True}},
        "narrow": {
            "networkPolicy": {
                "enabled": True,
                "sameNamespace": False,
                "namespaces": ["spark", "ingress"],
                "from": [PEER],
                "monitoring": [PEER],
                "egress": {"enabled": True, "rules": [{"ports": [{"port": 443, "protocol": "TCP"}]}]},
            }
        },
    },
    "prometheus": {
        "off": {},
        "on": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True, "labels": {"release": "p"}}},
        "more": {
            "serviceMonitor": {
                "enabled": True,
                "bearerToken": {"secretName": "admin", "key": "token"},
                "relabelings": [{"action": "labeldrop", "regex": "pod"}],
            }
        },
    },
    "dashboard": {"off": {}, "on": {"dashboard": {"enabled": True, "annotations": {"grafana_folder": "Data"}}}},
    "ingress": {
        "off": {},
        "more": {
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "16m"},
                "hosts": ["a.example"],
                "paths": ["/v1", "/console"],
                "tls": [{"secretName": "edge", "hosts": ["a.example"]}],
            }
        },
    },
    "route": {
        "off": {},
        "more": {
            "httpRoute": {
                "enabled": True,
                "labels": {"edge": "yes"},
                "parentRefs": [{"name": "gateway", "sectionName": "https"}],
                "hostnames": ["a.example"],
                "requestTimeout": "30s",
            }
        },
    },
    "account": {
        "made": {},
        "role": {"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/t"}}},
        "given": {"serviceAccount": {"create": False, "name": "mine"}},
        "default": {"serviceAccount": {"create": False, "automountToken": True}},
    },
    "scheduling": {
        "none": {},
        "all": {
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "tables", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        },
        "no spread": {"topologySpreadConstraints": []},
    },
    "extras": {
        "none": {},
        "all": {
            "extraEnv": [{"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "a=b"}],
            "extraEnvFrom": [{"secretRef": {"name": "more"}}],
            "extraArgs": ["--help"],
            "extraVolumes": [{"name": "more", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        },
    },
    "labels": {
        "none": {},
        "many": {
            "commonLabels": {"team": "tables", "app.kubernetes.io/name": "not-this"},
            "podLabels": {"tier": "data", "app.kubernetes.io/instance": "not-this"},
            "podAnnotations": {"note": "yes"},
        },
        "long": {"nameOverride": "n" * 80, "fullnameOverride": "f" * 90},
    },
    "image": {
        "version": {},
        "tag": {"image": {"repository": "registry.example:5000/data/tableside", "tag": "main" + "-x" * 50}},
        "digest": {"image": {"digest": "sha256:" + "0" * 64}, "imagePullSecrets": [{"name": "pull"}]},
    },
    "service": {
        "inside": {},
        "outside": {"service": {"type": "LoadBalancer", "port": 80, "annotations": {"a": "b"}, "labels": {"c": "d"}}},
    },
    "configuration": {
        "restarts": {},
        "stays": {"restartOnConfigChange": False, "preStopSleepSeconds": 0, "config": {"limits": {"shutdown_s": 7.5}}},
    },
    "tests": {
        "on": {},
        "off": {"tests": {"enabled": False}},
        "more": {"tests": {"token": {"secretName": "t", "key": "k"}, "get": {"table": "a", "key": "b/c ü"}}},
    },
}


def rows(count: int) -> list[dict[str, str]]:
    """Return rows, each with one choice for each topic."""
    dice = random.Random(SEED)
    return [{name: dice.choice(list(of)) for name, of in CHOICES.items()} for _ in range(count)]


def values_of(row: dict[str, str]) -> Values:
    """Return the values of a row, without values that the chart rejects in combination with the others."""
    values = merged(*(CHOICES[name][chosen] for name, chosen in row.items()))
    if row["workload"] != "remote":
        values.pop("autoscaling", None)
        values.pop("podDisruptionBudget", None)
    return values
