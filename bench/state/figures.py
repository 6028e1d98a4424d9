"""Compute figures from the results of a driver: by name, with the unit last."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, TypeAlias

from .inputs import Inputs

Figures: TypeAlias = dict[str, float]

CUSTOM = "custom "
"""The prefix of the names of a provider's custom metrics."""

PERCENTILE = 0.95


class Different(Exception):
    """The totals of a state differ from those of its rows."""


def of_run(answer: Mapping[str, Any], inputs: Inputs) -> Figures:
    """Return the figures of all micro-batches. Times per micro-batch exclude micro-batches that create keys."""
    progress, spent = answer["progress"], answer["spent"]
    if len(progress) != len(inputs.measured):
        raise Different(f"{len(progress)} micro-batches instead of {len(inputs.measured)}")
    batches_s = [_trigger_s(each) for each in progress]
    changing_s = batches_s[inputs.building :] or batches_s
    cpu_s = {"cpu_java_s": spent["java"], "cpu_python_s": spent["python"], "cpu_service_s": spent["service"]}
    return {
        "wall_s": spent["wall"],
        "building_s": sum(batches_s[: inputs.building]),
        "batch_s": median(changing_s),
        "batch_p95_s": quantile(changing_s, PERCENTILE),
        **_of_state([each["stateOperators"][0] for each in progress]),
        **cpu_s,
        "cpu_s": sum(cpu_s.values()),
        "cores_of_others": max(0.0, spent["machine"] - sum(cpu_s.values())) / spent["wall"],
        "load": answer["load"],
        "collecting_s": spent["collecting"],
        "heap_peak_bytes": answer["heap_peak_bytes"],
        "heap_live_bytes": answer["heap_live_bytes"],
        "heap_state_bytes": answer["heap_live_bytes"] - answer["heap_before_bytes"],
        "resident_bytes": answer["resident_bytes"],
        "resident_service_bytes": answer["service_resident_bytes"],
    }


def of_restart(answer: Mapping[str, Any], inputs: Inputs) -> Figures:
    """Return the figures of a restarted query. Raise `Different` if the totals of its state are wrong."""
    expected = asdict(inputs.totals)
    if answer["totals"] != expected:
        raise Different(f"the state adds up to {answer['totals']} instead of {expected}")
    loading_s, *loaded_s = (_trigger_s(each) for each in answer["progress"])
    loads_s = answer["loads_s"]
    return {
        "first_batch_s": loading_s,
        "recovery_s": max(0.0, loading_s - median(loaded_s)),
        "load_s": sum(loads_s),
        "load_longest_s": max(loads_s),
        "read_s": answer["read_s"],
    }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of the values at this share."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _trigger_s(progress: Mapping[str, Any]) -> float:
    return float(progress["durationMs"]["triggerExecution"]) / 1e3


def _of_state(operators: Sequence[Mapping[str, Any]]) -> Figures:
    """Return Spark's metrics of the state operator. Times are sums over tasks, which run concurrently."""
    names = {name for each in operators for name in each["customMetrics"]}
    custom = {
        CUSTOM + name: float(sum(each["customMetrics"].get(name, 0) for each in operators)) for name in sorted(names)
    }
    return {
        "updates_s": sum(each["allUpdatesTimeMs"] for each in operators) / 1e3,
        "commits_s": sum(each["commitTimeMs"] for each in operators) / 1e3,
        "commit_s": median(each["commitTimeMs"] for each in operators) / 1e3,
        "memory_bytes": float(operators[-1]["memoryUsedBytes"]),
        **custom,
    }
