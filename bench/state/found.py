"""Figures of all variants by round, with medians and ratios to the baseline of the same round."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from .figures import Figures
from .ways import BASELINE, WAYS


@dataclass
class Found:
    """The figures of each variant by round, for one setting, or the reason of its failure."""

    _figures: dict[str, dict[int, Figures]] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)

    def adds(self, way: str, turn: int, figures: Figures) -> None:
        """Add the figures of a round."""
        self._figures.setdefault(way, {})[turn] = figures

    def fails(self, way: str, why: str) -> None:
        """Record the reason of a failure."""
        self._failures[way] = why

    def ways(self) -> list[str]:
        """Return the variants that were measured or failed, the baseline first."""
        return [name for name in WAYS if name in self._figures or name in self._failures]

    def failure(self, way: str) -> str | None:
        """Return the reason if a variant failed in any round."""
        return self._failures.get(way)

    def median(self, way: str, figure: str) -> float | None:
        """Return the median of a figure, or None if the variant has always failed."""
        values = [each[figure] for each in self._figures.get(way, {}).values() if figure in each]
        return median(values) if values else None

    def ratio(self, way: str, figure: str) -> float | None:
        """Return the median of the ratios of a figure to the baseline's in the same round, or None without ratios."""
        ratios = list(self._ratios(way, figure))
        return median(ratios) if ratios else None

    def figure(self, way: str, figure: str) -> float:
        """Return the median of a figure of a variant that has not failed."""
        return median(each[figure] for each in self._figures[way].values())

    def counts(self, way: str) -> dict[str, int]:
        """Return the medians of all figures as whole numbers, seconds as milliseconds."""
        names = dict.fromkeys(name for each in self._figures[way].values() for name in each)
        medians = {name: self.median(way, name) for name in names}
        return dict(_whole(name, value) for name, value in medians.items() if value is not None)

    def _ratios(self, way: str, figure: str) -> Iterator[float]:
        baseline = self._figures.get(BASELINE, {})
        for turn, figures in self._figures.get(way, {}).items():
            base = baseline.get(turn, {}).get(figure, 0.0)
            if base > 0:
                yield figures[figure] / base


def _whole(name: str, value: float) -> tuple[str, int]:
    return (f"{name.removesuffix('_s')}_ms", round(value * 1e3)) if name.endswith("_s") else (name, round(value))
