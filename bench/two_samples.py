"""Welch's t-test for a difference between two sets of times, as dudect applies it to constant-time code.

Reparaz, Balasch and Verbauwhede, "Dude, is my code constant time?", 2017: times above a percentile of both sets are
discarded as effects of the scheduler, and an absolute t above 4.5 counts as a difference.
"""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, quantiles, variance

DIFFERENT = 4.5
KEPT_PERCENT = 90


def welch_t(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the difference of the means in standard errors, after discarding. It is positive if `some` is slower."""
    most = quantiles([*some, *others], n=100)[KEPT_PERCENT - 1]
    one, two = ([time for time in times if time <= most] for times in (some, others))
    if len(one) < 2 or len(two) < 2:
        return inf
    error = sqrt(variance(one) / len(one) + variance(two) / len(two))
    apart = fmean(one) - fmean(two)
    return apart / error if error else (inf if apart else 0.0)


def spread(times: Sequence[float]) -> float:
    """Return the interquartile range of the times."""
    first, _, third = quantiles(times, n=4)
    return third - first
