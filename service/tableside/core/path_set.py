"""The paths of an update. No path is the parent of another."""

from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]

_Node: TypeAlias = dict[str, "_Node | None"]

_ABSENT: _Node = {}


class PathSet:
    """Paths as a tree of their names. A path ends at None, so that comparing it with all others takes one descent."""

    def __init__(self) -> None:
        self._root: _Node = {}

    def add(self, path: Path) -> bool:
        """Add a path. Return False, with the set unchanged, if it overlaps one of the set."""
        node = self._root
        for name in path[:-1]:
            below = node.get(name, _ABSENT)
            if below is None:
                return False
            if below is _ABSENT:
                below = node[name] = {}
            node = below
        if path[-1] in node:
            return False
        node[path[-1]] = None
        return True

    def overlaps(self, path: Path) -> bool:
        """Return whether the set contains the path, a parent of it or a path below it."""
        node: _Node | None = self._root
        for name in path:
            if node is None:
                return True
            if name not in node:
                return False
            node = node[name]
        return True


def overlap(one: Path, other: Path) -> bool:
    """Return whether two paths are equal, or one is the parent of the other."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]
