"""Mounts of a command's own, which end with it. Knows nothing of the command."""

from pathlib import Path

from .install import CACHE, ensure_command

# In a chroot, `/` is no mount, and so nobody can say what is to become of mounts below it: make it one.
ROOT_MOUNTED = """
set -eu
mount --rbind / "$1"
mount --make-rprivate "$1"
exec chroot "$@"
"""


def with_own_mounts(*options: str) -> list[str]:
    """Return the words before a command that have it mount what nobody else sees; `options` are `unshare`'s."""
    unshare = [str(ensure_command("unshare", "util-linux")), "--mount", *options]
    if _root_is_a_mount():
        return [*unshare, "--"]
    place = CACHE / "root"
    place.mkdir(parents=True, exist_ok=True)
    return [*unshare, "--propagation=unchanged", "--", "sh", "-c", ROOT_MOUNTED, "sh", str(place)]


def _root_is_a_mount() -> bool:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == "/" for line in lines)
