"""Debian's PostgreSQL, with a new database cluster for each run."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from .install import ensure_command
from .process import HOST, Server, ServerFailed, free_port, running

PACKAGE = "postgresql"
PLACES = "/usr/lib/postgresql/*/bin"
SUPERUSER = "postgres"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "off",  # the data does not outlive the run
    "full_page_writes": "off",
}

INITDB = ["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"]


@contextlib.contextmanager
def postgres(directory: Path, *, arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run PostgreSQL and yield a connection string for its superuser, without a password.

    `arguments` come last on its command line and override defaults: `("-c", "fsync=on")`. The log is in `directory`.
    The data is in a temporary folder: PostgreSQL does not run as root, and its user cannot read root's folders.
    """
    with _data() as data:
        _run("initdb", data, *INITDB)
        with _running(data, directory, arguments) as dsn:
            yield dsn


@contextlib.contextmanager
def standby(directory: Path, primary: str, *, arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run a streaming standby of the server at `primary`, and yield its connection string. `pg_promote()` ends that."""
    with _data() as data:
        _run("pg_basebackup", data, "--dbname", primary, "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
        with _running(data, directory, arguments) as dsn:
            yield dsn


@contextlib.contextmanager
def _running(data: Path, directory: Path, arguments: Sequence[str]) -> Iterator[str]:
    port = free_port()
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    ready = [str(_command("pg_isready")), "--quiet", "--host", HOST, "--port", str(port)]
    server = Server(
        "postgres",
        [str(_command("postgres")), "-D", str(data), "-p", str(port), *settings, *arguments],
        answers=lambda: subprocess.run(ready, check=False).returncode == 0,
        user=_user(),
        directory=data,
        stop=signal.SIGINT,  # closes all connections, while SIGTERM would wait for clients to disconnect
        abandon=signal.SIGQUIT,  # a killed postmaster would leave its shared memory behind
    )
    with running(server, directory):
        yield f"postgresql://{SUPERUSER}@{HOST}:{port}/postgres"


@contextlib.contextmanager
def _data() -> Iterator[Path]:
    """Yield a new folder, owned by the user of the PostgreSQL process."""
    _command("initdb")  # installs the package, which creates the user
    folder = Path(tempfile.mkdtemp(prefix="tableside-postgres-"))
    try:
        if user := _user():
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(name: str, data: Path, *words: str) -> None:
    """Fill a data folder with one of PostgreSQL's programs."""
    command = [str(_command(name)), "--pgdata", str(data), *words]
    made = subprocess.run(command, user=_user(), cwd=data, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise ServerFailed(f"{name} ended with {made.returncode}:\n{made.stdout}{made.stderr}")


def _user() -> str | None:
    """Return the user to run PostgreSQL as: Debian's `postgres` if this process is root, otherwise None."""
    return SUPERUSER if os.geteuid() == 0 else None


def _command(name: str) -> Path:
    return ensure_command(name, PACKAGE, places=PLACES)
