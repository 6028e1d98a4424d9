"""Images of containers, built and taken apart with buildah, which needs no daemon. Knows nothing of what is in them."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bootstrap import SetupError

from .install import CACHE, ensure_command
from .mounts import with_own_mounts

LOG_LINES_MAX = 60


class BuildFailed(Exception):
    """An image could not be built; the message has the end of what was said."""


@dataclass(frozen=True)
class Builder:
    """Builds images, and keeps them below a folder."""

    storage: Path

    def load(self, name: str, files: Path) -> None:
        """Make an image whose files are those of an archive."""
        with tempfile.TemporaryDirectory(dir=self.storage) as context:
            os.link(files, Path(context) / files.name)
            (Path(context) / "Dockerfile").write_text(f"FROM scratch\nADD {files.name} /\n")
            self.build(name, Path(context))

    def build(
        self,
        name: str,
        context: Path,
        *,
        arguments: Mapping[str, str] | None = None,
        secrets: Mapping[str, Path] | None = None,
        file: Path | None = None,
    ) -> None:
        """Build what a folder has and its Dockerfile says, or another `file`, as if nothing had been built before."""
        given = [f"--build-arg={key}={value}" for key, value in (arguments or {}).items()]
        hidden = [f"--secret=id={key},src={file}" for key, file in (secrets or {}).items()]
        how = f"--file={file or context / 'Dockerfile'}"
        self._run("bud", "--isolation=chroot", *given, *hidden, how, f"--tag={name}", str(context))

    def described(self, name: str) -> dict[str, Any]:
        """Return what an image says of itself, as the OCI's specification has it: `config`, `history`, …."""
        described: dict[str, Any] = json.loads(self._run("inspect", "--type=image", name))["OCIv1"]
        return described

    def export(self, name: str, folder: Path) -> None:
        """Write an image into a folder as it would be sent to others: its layers as archives, and what describes it."""
        self._run("push", "--disable-compression", name, f"dir:{folder}")

    @contextlib.contextmanager
    def unpacked(self, name: str) -> Iterator[Path]:
        """Yield the folder that has an image's files, all of its layers together."""
        container = self._run("from", name).strip()
        try:
            yield Path(self._run("mount", container).strip())
        finally:
            self._run("rm", container)

    def _run(self, *words: str) -> str:
        where = [f"--root={self.storage / 'root'}", f"--runroot={self.storage / 'run'}", "--storage-driver=vfs"]
        done = subprocess.run(
            [*with_own_mounts(), str(ensure_command("buildah", "buildah")), *where, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(self.storage)},
        )
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).splitlines()[-LOG_LINES_MAX:]
            raise BuildFailed("\n".join([f"buildah {words[0]} ended with {done.returncode}:", *lines]))
        return done.stdout


@contextlib.contextmanager
def builder() -> Iterator[Builder]:
    """Yield a builder whose images are gone afterwards; they are large, and not in memory where /tmp is."""
    if os.geteuid() != 0:
        raise SetupError("images are built with other users' files in them: that needs root")
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="images-", dir=CACHE))
    try:
        yield Builder(folder)
    finally:
        shutil.rmtree(folder)
