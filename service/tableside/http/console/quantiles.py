"""Quantiles of a histogram, as Prometheus' `histogram_quantile` finds them."""

from collections.abc import Sequence


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Return the value below which that share of the observations lies; None where there are none.

    `buckets` are upper bounds, the last of them infinite, with how many observations are not above each. Within a
    bucket they are taken to lie evenly; what lies in the last is only known to be above the bound before it, which is
    the answer then.
    """
    count = buckets[-1][1]
    if not count:
        return None
    rank, lower, below = share * count, 0.0, 0.0
    for bound, upto in buckets[:-1]:
        if upto >= rank and upto > below:
            return lower + (bound - lower) * (rank - below) / (upto - below)
        lower, below = bound, upto
    return lower
