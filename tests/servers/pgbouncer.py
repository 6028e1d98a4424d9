"""Debian's pgbouncer, a connection pooler in front of a PostgreSQL server."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .install import ensure_command
from .process import HOST, Server, accepts_connections, free_port, running

SUPERUSER = "postgres"


@contextlib.contextmanager
def pgbouncer(
    directory: Path, dsn: str, *, mode: str = "transaction", settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run pgbouncer in front of the server at `dsn`, and yield a connection string that leads through it."""
    command, port = str(ensure_command("pgbouncer", "pgbouncer", places="/usr/sbin")), free_port()
    user = SUPERUSER if os.geteuid() == 0 else None  # pgbouncer does not run as root
    with tempfile.TemporaryDirectory(prefix="tableside-pgbouncer-") as folder:
        Path(folder).chmod(0o755)
        users, configuration = Path(folder) / "users.txt", Path(folder) / "pgbouncer.ini"
        users.write_text(f'"{SUPERUSER}" ""\n')
        options = {
            "listen_addr": HOST,
            "listen_port": str(port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(users),
            "pool_mode": mode,
            **(settings or {}),
        }
        lines = [f"{name} = {value}" for name, value in options.items()]
        database = f"* = host={HOST} port={urlsplit(dsn).port}"
        configuration.write_text("\n".join(["[databases]", database, "[pgbouncer]", *lines, ""]))
        server = Server("pgbouncer", [command, str(configuration)], lambda: accepts_connections(port), user=user)
        with running(server, directory):
            yield f"postgresql://{SUPERUSER}@{HOST}:{port}/postgres"
