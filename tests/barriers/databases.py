"""Real databases for the tests of barriers: SQLite always, PostgreSQL and MariaDB where Debian's packages are installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from tests.support.servers import until

#: What a database is called in ids of tests.
NAMES = ("sqlite", "postgresql", "mysql")


@contextlib.contextmanager
def database(name: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database of this kind; skips the test if its server is not installed."""
    if name == "sqlite":
        yield f"sqlite:///{folder}/shop.db"
    elif name == "postgresql":
        with _postgresql() as url:
            yield url
    else:
        with _mysql() as url:
            yield url


def _found(*programs: str) -> str:
    """The folder of a server's programs, which Debian does not put into the path."""
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/sbin"), Path("/usr/bin")]
    for folder in folders:
        if all((folder / program).exists() for program in programs):
            return str(folder)
    pytest.skip(f"{programs[0]} is not installed")


def _user(name: str) -> str | None:
    """Who runs the server: these servers refuse to run as root."""
    return name if os.geteuid() == 0 else None


@contextlib.contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="saga-sql-", dir="/tmp"))  # a socket's path is short
    try:
        if user is not None:
            shutil.chown(folder, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _running(command: list[str], user: str | None, folder: Path, url: str, stop: signal.Signals) -> Iterator[str]:
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, user=user, cwd=folder, env=_env(folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    engine = create_engine(url)

    def answers() -> bool:
        assert server.poll() is None, (folder / "log").read_text(errors="replace")[-2000:]
        try:
            with engine.connect() as db:
                db.execute(text("SELECT 1"))
        except SQLAlchemyError:
            return False
        return True

    try:
        until(answers, "the database server to start")
        engine.dispose()
        yield url
    finally:
        engine.dispose()
        server.send_signal(stop)
        server.wait()


def _made(command: list[str], user: str | None, folder: Path) -> None:
    env = _env(folder)
    done = subprocess.run(command, user=user, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _env(folder: Path) -> dict[str, str]:
    """The temporary folder of the tests belongs to their user, and the server may run as another one."""
    return {**os.environ, "TMPDIR": str(folder)}


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    programs = _found("initdb", "postgres")
    user = _user("postgres")
    with _folder(user) as folder:
        data = str(folder / "data")
        _made([f"{programs}/initdb", "-D", data, "-U", "shop", "-A", "trust", "--no-sync", "-E", "UTF8"], user, folder)
        command = [f"{programs}/postgres", "-D", data, "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        url = f"postgresql+psycopg://shop@/postgres?host={folder}"
        with _running(command, user, folder, url, signal.SIGINT):  # a fast shutdown
            yield url


@contextlib.contextmanager
def _mysql() -> Iterator[str]:
    programs = _found("mariadbd")
    install = shutil.which("mariadb-install-db") or pytest.skip("mariadb-install-db is not installed")
    user = _user("mysql")
    with _folder(user) as folder:
        data = f"--datadir={folder}/data"
        _made([install, "--no-defaults", data, "--auth-root-authentication-method=normal"], user, folder)
        command = [f"{programs}/mariadbd", "--no-defaults", data, f"--socket={folder}/s", "--skip-networking"]
        url = f"mysql+pymysql://root@localhost/test?unix_socket={folder}/s&charset=utf8mb4"
        with _running(command, user, folder, url, signal.SIGTERM):
            yield url
