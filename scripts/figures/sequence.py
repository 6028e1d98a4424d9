"""Figures of messages: actors from left to right, and their messages to each other from top to bottom."""

from collections.abc import Mapping
from typing import Any

from .shapes import SMALL, Drawing, arrow, box, text, width_of

HEAD, ROW, MARGIN = 46, 40, 20
ACTOR_WIDTH = 150


def draw(source: Mapping[str, Any]) -> Drawing:
    """Draw a figure.

    `actors` have `text`, `kind` and `notes`. A step is a message (`from`, `to`: indexes of actors, `text`, `lost: true`
    if it does not arrive) or a note of an actor (`at`, `text`, or several `lines`).
    """
    actors, gap = source["actors"], source["gap"]
    middles = [MARGIN + source.get("side", ACTOR_WIDTH) / 2 + gap * index for index in range(len(actors))]
    width = round(middles[-1] + source.get("side", ACTOR_WIDTH) / 2 + MARGIN)
    top, drawn = MARGIN + HEAD + 14, list[str]()
    for step in source["steps"]:
        drawn += _message(step, middles, top) if "to" in step else _note(step, middles[step["at"]], top, width)
        top += ROW if "to" in step else 16 + 15 * len(step["lines"])
    heads = [
        element
        for actor, middle in zip(actors, middles, strict=True)
        for element in (
            f'<path d="M{middle:g} {MARGIN + HEAD}V{top}" stroke-dasharray="2 3"/>',
            *box([middle - ACTOR_WIDTH / 2, MARGIN, ACTOR_WIDTH, HEAD], actor["kind"], actor["text"], actor["notes"]),
        )
    ]
    return Drawing(width, top + MARGIN, heads + drawn)


def _message(step: Mapping[str, Any], middles: list[float], top: float) -> list[str]:
    start, end = middles[step["from"]], middles[step["to"]]
    line = step["text"]
    if width_of(line, SMALL) > abs(end - start) - 10:
        raise ValueError(f"{line!r} is longer than its arrow")
    drawn = [text(((start + end) / 2, top + 12), line, small=True, css="alert" if step.get("lost") else "")]
    if not step.get("lost"):
        return [*drawn, arrow([(start, top + 20), (end, top + 20)])]
    stop = end + (start - end) / 4
    cross = f"M{stop - 5:g} {top + 15:g}l10 10m0 -10l-10 10"
    path = f'<path class="lost" d="M{start:g} {top + 20:g}H{stop:g}"/><path class="lost" d="{cross}"/>'
    return [*drawn, path]


def _note(step: Mapping[str, Any], middle: float, top: float, width: float) -> list[str]:
    needed = max(width_of(line, SMALL) for line in step["lines"]) + 16
    left = min(max(middle - needed / 2, 4), width - needed - 4)
    return box([left, top + 2, needed, 8 + 15 * len(step["lines"])], step.get("kind", "area"), "", step["lines"])
