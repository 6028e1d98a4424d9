"""A container, made of an image's files with what Linux has: no daemon, and nothing that has to be installed.

As an orchestrator would that grants nothing: the process is the first of its own, without any right of root's and
unable to get one; all files are read-only but /tmp and what is mounted. The network is this machine's.
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

from .install import ensure_command
from .mounts import with_own_mounts
from .process import STOP_MAX_S, ServerFailed

START_MAX_S = 30.0
LOOK_S = 0.02

# $1 is the folder of the image's files, $2 how many pairs of places follow, then the command.
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
    """The folder that has an image's files, and the `config` of what it says of itself."""

    root: Path
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """How to run an image: what is given in place of its command, of its entry point or of its user, and beside them.

    `mounts` says for a place in the container, where there is something already, what of this machine is there.
    """

    command: Sequence[str] | None = None
    entrypoint: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True)
class Container:
    """A container that runs: its first process, as this machine counts, and the files of what it says."""

    pid: int
    output: Path
    errors: Path
    _waiting: "subprocess.Popen[bytes]"

    def stop(self, order: signal.Signals = signal.SIGTERM) -> None:
        """Tell it to end."""
        os.kill(self.pid, order)

    def ended(self, timeout_s: float) -> int:
        """Wait for its end and return its exit code."""
        return self._waiting.wait(timeout_s)


@contextlib.contextmanager
def container(image: Image, run: Run, scratch: Path) -> Iterator[Container]:
    """Run an image; it is killed at the end if it has not ended by itself. What it says is in files in `scratch`."""
    scratch.mkdir(parents=True, exist_ok=True)
    output, errors = scratch / "output.log", scratch / "errors.log"
    with output.open("ab") as out, errors.open("ab") as err:
        waiting = subprocess.Popen([*_apart(), *_entered(image, run)], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    try:
        yield Container(_first(waiting), output, errors, waiting)
    finally:
        waiting.kill()  # its child with it
        waiting.wait(STOP_MAX_S)


def ran(image: Image, run: Run, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run an image to its end."""
    return subprocess.run(
        [*_apart(), *_entered(image, run)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def _apart() -> list[str]:
    """Return the words before a command that give it processes and mounts of its own, which end with us."""
    setpriv = str(ensure_command("setpriv", "util-linux"))
    return [setpriv, "--pdeathsig=KILL", "--", *with_own_mounts("--pid", "--fork", "--kill-child")]


def _entered(image: Image, run: Run) -> list[str]:
    """Return the words that mount what belongs there, give up every right, and become what the image runs."""
    user, _, group = (run.user or image.config["User"]).partition(":")
    places = [str(part) for place, source in run.mounts.items() for part in (source, place)]
    powerless = [f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
    # Whoever changes users loses what `--kill-child` has set: it is set anew, after that.
    powerless += ["--bounding-set=-all", "--inh-caps=-all", "--pdeathsig=KILL", "--"]
    environment = [*image.config["Env"], *(f"{name}={value}" for name, value in run.environment.items())]
    program = image.config["Entrypoint"] if run.entrypoint is None else run.entrypoint
    command = [*program, *(image.config["Cmd"] if run.command is None else run.command)]
    inside = ["env", "--ignore-environment", f"--chdir={image.config['WorkingDir']}", *environment, *command]
    return ["sh", "-c", ENTER, "sh", str(image.root), str(len(run.mounts)), *places, *powerless, *inside]


def _first(waiting: "subprocess.Popen[bytes]") -> int:
    """Return the first process of a container, which becomes what the image runs."""
    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
    until = time.monotonic() + START_MAX_S
    while waiting.poll() is None and time.monotonic() < until:
        if pids := children.read_text().split():
            return int(pids[0])
        time.sleep(LOOK_S)
    raise ServerFailed(f"a container ended with {waiting.poll()}")
