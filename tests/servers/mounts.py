"""Run a command in its own mount namespace."""

from pathlib import Path

from .install import CACHE, ensure_command

# In a chroot, `/` is not a mount point, so the propagation of the mounts below it cannot be set: make it one.
ROOT_MOUNTED = """
set -eu
mount --rbind / "$1"
mount --make-rprivate "$1"
exec chroot "$@"
"""


def with_own_mounts(*options: str) -> list[str]:
    """Return the command prefix for a new mount namespace. `options` are more options of `unshare`."""
    unshare = [str(ensure_command("unshare", "util-linux")), "--mount", *options]
    if _root_is_a_mount():
        return [*unshare, "--"]
    root = CACHE / "root"
    root.mkdir(parents=True, exist_ok=True)
    return [*unshare, "--propagation=unchanged", "--", "sh", "-c", ROOT_MOUNTED, "sh", str(root)]


def _root_is_a_mount() -> bool:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == "/" for line in lines)
