"""Look into a wheel and an sdist for what would be wrong about publishing them."""

import tarfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata
from packaging.version import Version

JAR = "tableside_spark/state/tableside-state.jar"
PACKAGES = {"tableside", "tableside_client", "tableside_spark", "pyspark_tableside"}


def faults(wheel: Path, sdist: Path, version: Version) -> list[str]:
    """Return what is wrong, one line each; nothing if they can be published as that version."""
    described = {wheel.name: wheel_metadata(wheel), sdist.name: sdist_metadata(sdist)}
    found = [
        f"{name}: its metadata differ from the wheel's"
        for name in described
        if described[name] != described[wheel.name]
    ]
    parsed = Metadata.from_email(described[wheel.name], validate=True)
    if (parsed.name, parsed.version) != ("tableside", version):
        found.append(f"{wheel.name}: is {parsed.name} {parsed.version}, not tableside {version}")
    strangers = packages(wheel) - PACKAGES
    found += [f"{wheel.name}: would install {name}, which is not ours" for name in sorted(strangers)]
    return found + [f"{file.name}: has no jar of the state store" for file in (wheel, sdist) if not has_jar(file)]


def wheel_metadata(wheel: Path) -> bytes:
    """Return what a wheel says of itself. A wheel has one such file."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name)


def sdist_metadata(sdist: Path) -> bytes:
    """Return what an sdist says of itself."""
    with tarfile.open(sdist) as archive:
        file = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert file is not None
        return file.read()


def has_jar(file: Path) -> bool:
    """Tell whether a wheel or an sdist has the jar of the state store."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return JAR in wheel.namelist()
    with tarfile.open(file) as sdist:
        return f"{file.name.removesuffix('.tar.gz')}/spark_client/{JAR}" in sdist.getnames()


def packages(wheel: Path) -> set[str]:
    """Return the names that a wheel puts beside others where it is installed, but for its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    return {name for name in names if not name.endswith(".dist-info")}
