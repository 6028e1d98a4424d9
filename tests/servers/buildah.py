"""Build, export and unpack container images with buildah, which needs no daemon."""

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

from .container import with_own_mounts
from .install import CACHE, ensure_command

LOG_LINES_MAX = 60


class BuildFailed(Exception):
    """buildah failed. The message contains the last lines of its output."""


@dataclass(frozen=True)
class Builder:
    """Builds images and keeps them in a folder."""

    storage: Path

    def load(self, name: str, files: Path) -> None:
        """Create an image from the files of an archive."""
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
    ) -> None:
        """Build an image from a folder and its Dockerfile, without a cache."""
        build_arguments = [f"--build-arg={key}={value}" for key, value in (arguments or {}).items()]
        secret_options = [f"--secret=id={key},src={file}" for key, file in (secrets or {}).items()]
        dockerfile = f"--file={context / 'Dockerfile'}"
        self._run(
            "bud", "--isolation=chroot", *build_arguments, *secret_options, dockerfile, f"--tag={name}", str(context)
        )

    def described(self, name: str) -> dict[str, Any]:
        """Return the description of an image in OCI format: `config`, `history` and so on."""
        described: dict[str, Any] = json.loads(self._run("inspect", "--type=image", name))["OCIv1"]
        return described

    def export(self, name: str, folder: Path) -> None:
        """Write an image into a folder in the format of a registry: its layers, manifest and configuration."""
        self._run("push", "--disable-compression", name, f"dir:{folder}")

    @contextlib.contextmanager
    def unpacked(self, name: str) -> Iterator[Path]:
        """Yield the folder with the files of an image, with all layers merged."""
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
            raise BuildFailed("\n".join([f"buildah {words[0]} exited with {done.returncode}:", *lines]))
        return done.stdout


@contextlib.contextmanager
def builder() -> Iterator[Builder]:
    """Yield a builder and delete its images at the end. They are large, and /tmp may be in memory: it is not used."""
    if os.geteuid() != 0:
        raise SetupError("building images needs root, because they contain other users' files")
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="images-", dir=CACHE))
    try:
        yield Builder(folder)
    finally:
        shutil.rmtree(folder)
