"""Benchmark of the state of a Structured Streaming query, in Spark's own stores and in a Tableside table."""

from .rounds import Plan, run
from .runs import DriverFailed

__all__ = ["DriverFailed", "Plan", "run"]
