"""Run an image's files as a container with util-linux, without a daemon, on the network of this machine.

Like an orchestrator that grants nothing: the process has PID 1 and no privileges, and cannot gain any. All files are
read-only except /tmp and the mounts. (bubblewrap is no alternative: run by root, its monitor process gives up the right
to signal other users' processes, so the container would survive a killed test run.)
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .install import CACHE, ensure_command
from .process import START_MAX_S, ServerFailed

LOOK_S = 0.02

# In a chroot, `/` is not a mount point, so the propagation of the mounts below it cannot be set: make it one.
ROOT_MOUNTED = """
set -eu
mount --rbind / "$1"
mount --make-rprivate "$1"
exec chroot "$@"
"""

# Arguments: the folder with the image's files, the number of mounts, a source and a target for each, the command.
ENTER = """
set -eu
root=$1 mounts=$2
shift 2
mount --bind "$root" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"
mount -t tmpfs -o mode=755,nosuid,noexec tmpfs "$root/dev"
for name in null zero random urandom; do
  : > "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
while [ "$mounts" -gt 0 ]; do
  mount --bind "$1" "$root$2"
  shift 2
  mounts=$((mounts - 1))
done
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv "$@"
"""


@dataclass(frozen=True)
class Image:
    """The folder with an image's files, and the `config` of its description."""

    root: Path
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """Options that replace or extend those of the image.

    `mounts` maps paths in the container, which must exist in the image, to paths on this machine.
    """

    command: Sequence[str] | None = None
    entrypoint: Sequence[str] | None = None
    mounts: Mapping[str, Path] = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True)
class Container:
    """A running container: the PID of its first process on this machine, and the files with its output."""

    pid: int
    output: Path
    errors: Path
    _waiting: "subprocess.Popen[bytes]"

    def stop(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the first process."""
        os.kill(self.pid, stop_signal)

    def ended(self, timeout_s: float) -> int:
        """Wait until the container ends and return its exit code."""
        return self._waiting.wait(timeout_s)


@contextlib.contextmanager
def container(image: Image, run: Run, scratch: Path) -> Iterator[Container]:
    """Run an image with its output in files in `scratch`. Kill it at the end if it is still running."""
    scratch.mkdir(parents=True, exist_ok=True)
    output, errors = scratch / "output.log", scratch / "errors.log"
    with output.open("ab") as out, errors.open("ab") as err:
        waiting = subprocess.Popen(
            [*_namespaces(), *_program(image, run)], stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
    try:
        yield Container(_first(waiting), output, errors, waiting)
    finally:
        waiting.kill()  # and with it the first process
        waiting.wait()


def ran(image: Image, run: Run, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run an image until it ends."""
    return subprocess.run(
        [*_namespaces(), *_program(image, run)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def _namespaces() -> list[str]:
    """Return the command prefix for new PID and mount namespaces, which end with this process."""
    setpriv = str(ensure_command("setpriv", "util-linux"))
    return [setpriv, "--pdeathsig=KILL", "--", *with_own_mounts("--pid", "--fork", "--kill-child")]


def _program(image: Image, run: Run) -> list[str]:
    """Return the command that mounts the file systems, drops all privileges and executes the image's program."""
    user, _, group = (run.user or image.config["User"]).partition(":")
    mounts = [str(path) for target, source in run.mounts.items() for path in (source, target)]
    privileges = [f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
    # A change of the user resets the signal that `--kill-child` has set for the death of the parent process.
    privileges += ["--bounding-set=-all", "--inh-caps=-all", "--pdeathsig=KILL", "--"]
    program = image.config["Entrypoint"] if run.entrypoint is None else run.entrypoint
    command = [*program, *(image.config["Cmd"] if run.command is None else run.command)]
    inside = ["env", "--ignore-environment", f"--chdir={image.config['WorkingDir']}", *image.config["Env"], *command]
    return ["sh", "-c", ENTER, "sh", str(image.root), str(len(run.mounts)), *mounts, *privileges, *inside]


def _first(waiting: "subprocess.Popen[bytes]") -> int:
    """Return the PID of the container's first process, which executes the image's program."""
    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
    until = time.monotonic() + START_MAX_S
    while waiting.poll() is None and time.monotonic() < until:
        if pids := children.read_text().split():
            return int(pids[0])
        time.sleep(LOOK_S)
    raise ServerFailed(f"a container ended with {waiting.poll()}")


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
