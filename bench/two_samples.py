"""Whether two ways take different times: Welch's t, as dudect applies it to code that must not tell secrets.

Reparaz, Balasch and Verbauwhede, "Dude, is my code constant time?", 2017: times beyond a percentile of both together
are left out, which are the scheduler's, and an absolute t above 4.5 is taken for a difference.
"""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, quantiles, variance

DIFFERENT = 4.5
KEPT_PERCENT = 90


def welch_t(some: Sequence[float], others: Sequence[float]) -> float:
    """Return how many standard errors the means of what is kept are apart, above 0 if those of `some` are larger."""
    most = quantiles([*some, *others], n=100)[KEPT_PERCENT - 1]
    one, two = ([time for time in times if time <= most] for times in (some, others))
    if len(one) < 2 or len(two) < 2:
        return inf
    error = sqrt(variance(one) / len(one) + variance(two) / len(two))
    apart = fmean(one) - fmean(two)
    return apart / error if error else (inf if apart else 0.0)


def spread(times: Sequence[float]) -> float:
    """Return how far the middle half of the times reaches."""
    first, _, third = quantiles(times, n=4)
    return third - first
