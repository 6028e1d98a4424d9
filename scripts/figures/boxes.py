"""Figures of boxes: boxes at positions in pixels, arrows between them, and labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from .shapes import Drawing, Point, arrow, box, text

Boxes = Mapping[str, Sequence[float]]


def draw(source: Mapping[str, Any]) -> Drawing:
    """Draw a figure.

    `boxes` maps names to `at: [x, y, width, height]`, `kind`, `text` and `notes`. An arrow has `from` and `to`, each a
    box's name, a side and the share of that side at which the arrow is (`spark right 0.5`).
    """
    places: Boxes = {name: one["at"] for name, one in source["boxes"].items()}
    elements = [
        element
        for one in source["boxes"].values()
        for element in box(one["at"], one["kind"], one.get("text", ""), one.get("notes", []))
    ]
    for one in source.get("arrows", []):
        elements += _arrow(one, places)
    for one in source.get("labels", []):
        elements.append(text(one["at"], one["text"], small=not one.get("bold"), bold=bool(one.get("bold")), css="soft"))
    return Drawing(source["width"], source["height"], elements)


def _arrow(one: Mapping[str, Any], places: Boxes) -> list[str]:
    start, end = _end(one["from"], places), _end(one["to"], places)
    via: list[Point] = [(x, y) for x, y in one.get("via", [])]
    drawn = [arrow([start, *via, end], dashed=bool(one.get("dashed")))]
    if "text" in one:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        right, down = one.get("shift", [0, -6])
        drawn += [text((x + right, y + down), one["text"], small=True, css="soft", anchor=one.get("anchor", "middle"))]
    return drawn


def _end(said: str, places: Boxes) -> Point:
    name, side, *share = said.split()
    x, y, width, height = places[name]
    part = float(share[0]) if share else 0.5
    match side:
        case "left":
            return x, y + height * part
        case "right":
            return x + width, y + height * part
        case "top":
            return x + width * part, y
        case _:
            return x + width * part, y + height
