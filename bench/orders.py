"""Batches of 1,000 puts and updates with an order, beside those with a token, on embedded stores and Redis."""

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from examples.demo.service import Service

from servers.redis import redis

from .batches import STORES, Shape, rate, service_of
from .cases import Case, check
from .report import Result
from .turns import Comparison, Rate, measured

PUTS = (
    Case("token, named key", key_name="tailnum", token=True),
    Case("order, named key", 0.7, key_name="tailnum", order=True),
)
UPDATES = (
    Case("token, named key, $set", key_name="tailnum", token=True, sets=True),
    Case("order, named key, $set", key_name="tailnum", order=True, sets=True),
)
"""Their records have members with orders of their own, so they are not those of the puts."""

SHAPES = (Shape("put", "Arrow", 1000), Shape("update", "Arrow", 1000), Shape("put", "JSON", 1000))


def run(seconds: float, rounds: int) -> list[Result]:
    """Measure each shape on each store. The ratios are to the batch with a token."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis_url = stack.enter_context(redis(folder))
        comparisons: list[Comparison] = []
        for store in STORES:
            service = stack.enter_context(service_of(folder, store, redis_url, PUTS + UPDATES))
            comparisons += [_comparison(service, store, shape, seconds) for shape in SHAPES]
        return measured(comparisons, rounds)


def _comparison(service: Service, store: str, shape: Shape, seconds: float) -> Comparison:
    ways: dict[str, Rate] = {}
    cases = PUTS if shape.op == "put" else UPDATES
    for case in cases:
        requests = shape.requests(case)
        check(service.url, requests[0], shape.rows)
        ways[case.name] = partial(rate, service.url, requests, shape.rows, seconds)
    ratios_min = {case.name: case.ratio_min for case in cases if case.ratio_min is not None}
    return Comparison(f"{store}, {shape}", "records", ways, ratios_min, dict.fromkeys(ways, service.process.pid))
