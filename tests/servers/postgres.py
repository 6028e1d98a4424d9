"""PostgreSQL, as Debian packages it, with a fresh database cluster for each run."""

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


@contextlib.contextmanager
def postgres(directory: Path, *, arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run PostgreSQL and yield a connection string for its superuser, who needs no password.

    `arguments` go to the server last, so that they win: `("-c", "fsync=on")`. Its log is in `directory`; its data is in
    a temporary folder, since PostgreSQL does not run as root, and the user it runs as cannot look into root's folders.
    """
    port = free_port()
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    ready = [str(_command("pg_isready")), "--quiet", "--host", HOST, "--port", str(port)]
    with _data() as data:
        _initialise(data)
        server = Server(
            "postgres",
            [str(_command("postgres")), "-D", str(data), "-p", str(port), *settings, *arguments],
            answers=lambda: subprocess.run(ready, check=False).returncode == 0,
            user=_user(),
            directory=data,
            stop=signal.SIGINT,  # break connections off; SIGTERM would wait for clients to leave
            abandon=signal.SIGQUIT,  # without a killed postmaster's shared memory left behind
        )
        with running(server, directory):
            yield f"postgresql://{SUPERUSER}@{HOST}:{port}/postgres"


@contextlib.contextmanager
def _data() -> Iterator[Path]:
    """Yield a new folder that belongs to the user that PostgreSQL runs as."""
    _command("initdb")  # the user comes with the package
    folder = Path(tempfile.mkdtemp(prefix="tableside-postgres-"))
    try:
        if user := _user():
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder)


def _initialise(data: Path) -> None:
    """Make an empty database cluster."""
    words = ["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8"]
    command = [str(_command("initdb")), "--pgdata", str(data), "--no-sync", "--no-instructions", *words]
    made = subprocess.run(command, user=_user(), cwd=data, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise ServerFailed(f"initdb ended with {made.returncode}:\n{made.stdout}{made.stderr}")


def _user() -> str | None:
    """Return whom PostgreSQL runs as instead of us: Debian's user for it, if we are root."""
    return SUPERUSER if os.geteuid() == 0 else None


def _command(name: str) -> Path:
    return ensure_command(name, PACKAGE, places=PLACES)
