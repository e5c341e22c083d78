"""More real MCP servers of others, each with a world: a git server with cases, a calendar, a SQL database."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from sqlalchemy import create_engine, make_url, text

from saga_engine.sources.mcp import McpServer
from saga_engine.testing.proxy import CuttingProxy
from tests.barriers.databases import database
from tests.mcp.real_servers import HERE, Git
from tests.support.ports import free_ports
from tests.support.servers import until

PATIENCE = {"start_timeout_s": 600, "timeout_s": 600}
MODULES = HERE / "node_modules" / ".bin"


def _need(program: Path) -> str:
    if not program.exists():
        pytest.skip(f"{program} is not installed: make mcp-servers")
    return str(program)


class Repository(Git):
    """A repository with a remote, a second branch with a commit of its own, and two tags."""

    kind = "git-mcp-server"

    def prepare(self) -> None:
        super().prepare()
        (self.folder / "f").write_text("1\n")
        self.git("checkout", "-q", "other")
        (self.folder / "g").write_text("g\n")
        self.git("add", "g")
        self.git("commit", "-qm", "of the other")
        self.git("checkout", "-q", "main")
        self.git("tag", "light")
        self.git("tag", "-a", "-m", "said", "heavy")
        self.git("init", "-q", "--bare", str(self.remote))
        self.git("remote", "add", "origin", str(self.remote))
        (self.folder / "f").write_text("2\n")

    @property
    def remote(self) -> Path:
        return self.folder.with_name("remote")

    def command(self) -> list[str]:
        return [_need(MODULES / "git-mcp-server")]

    def table(self) -> dict[str, Any]:
        return {**super().table(), "env": {"GIT_SIGN_COMMITS": "false"}}

    def facts(self) -> Any:
        remote = self.git("-C", str(self.remote), "for-each-ref")
        return [*super().facts(), self.git("remote", "-v"), remote]


class Calendar:
    """A calendar of Radicale, a CalDAV server that keeps each event in a file."""

    def __init__(self, folder: Path, port: int) -> None:
        self.files = folder / "data"
        self.url = f"http://127.0.0.1:{port}/"
        self.calendar = f"{self.url}ann/inn/"

    def server(self) -> McpServer:
        env = {"CALDAV_BASE_URL": self.url, "CALDAV_USERNAME": "ann", "CALDAV_PASSWORD": "x"}
        command = [_need(MODULES / "caldav-mcp")]
        return McpServer("calendar", command=command, env=env, manifest="builtin:caldav", **PATIENCE)

    def facts(self) -> dict[str, str]:
        """The events and tasks."""
        return {
            file.name: file.read_text() for file in self.files.rglob("*.ics") if ".Radicale.cache" not in file.parts
        }


@contextmanager
def calendar(folder: Path) -> Iterator[Calendar]:
    """A calendar with one event in it, for the duration of the block."""
    it = Calendar(folder, free_ports(1)[0])
    config = folder / "radicale.ini"
    host = it.url.removeprefix("http://").removesuffix("/")
    config.write_text(f"[server]\nhosts = {host}\n[auth]\ntype = none\n[storage]\nfilesystem_folder = {it.files}\n")
    python = _need(HERE / "python" / "bin" / "radicale")
    with (folder / "radicale.log").open("wb") as log:
        running = subprocess.Popen([python, "--config", str(config)], stdout=log, stderr=log)
        try:
            until(lambda: _answers(it.url), "Radicale to start")
            _request("MKCALENDAR", it.calendar)
            event = "BEGIN:VEVENT\r\nUID:old\r\nDTSTAMP:20260101T000000Z\r\nDTSTART:20261201T090000Z\r\n"
            event += "DTEND:20261201T100000Z\r\nSUMMARY:there before\r\nEND:VEVENT\r\n"
            head = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//saga//EN\r\n"
            _request("PUT", f"{it.calendar}old.ics", f"{head}{event}END:VCALENDAR\r\n")
            yield it
        finally:
            running.terminate()
            running.wait()


def _answers(url: str) -> bool:
    try:
        _request("OPTIONS", url)
    except OSError:
        return False
    return True


def _request(method: str, url: str, body: str = "") -> None:
    headers = {"Content-Type": "text/calendar", "Authorization": "Basic YW5uOng="}
    made = urllib.request.Request(url, body.encode(), headers, method=method)
    urllib.request.urlopen(made).close()


class Sql:
    """A table of PostgreSQL behind DBHub, with two tools of its configuration beside its own."""

    TOOLS = """
[[sources]]
id = "shop"
dsn = {dsn}

[[tools]]
name = "execute_sql"
source = "shop"

[[tools]]
name = "search_objects"
source = "shop"

[[tools]]
name = "add_order"
description = "Adds an order."
source = "shop"
statement = "INSERT INTO orders (id, item) VALUES ($1, $2)"
[[tools.parameters]]
name = "id"
type = "integer"
description = "its number"
[[tools.parameters]]
name = "item"
type = "string"
description = "what is ordered"

[[tools]]
name = "drop_order"
description = "Drops an order."
source = "shop"
statement = "DELETE FROM orders WHERE id = $1"
[[tools.parameters]]
name = "id"
type = "integer"
description = "its number"

[[tools]]
name = "order"
description = "Shows an order."
source = "shop"
readonly = true
statement = "SELECT item FROM orders WHERE id = $1"
[[tools.parameters]]
name = "id"
type = "integer"
description = "its number"
"""
    #: What an operator adds to the shipped manifest for these tools.
    MANIFEST: ClassVar[dict[str, Any]] = {
        "add_order": {"undo": "drop_order"},
        "drop_order": {"idempotent": True, "ask": False},
        "order": {"effect": "read"},
    }

    def __init__(self, url: str, folder: Path, port: int) -> None:
        self._engine = create_engine(url)
        with self._engine.begin() as db:
            db.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)"))
            db.execute(text("INSERT INTO orders VALUES (1, 'tea')"))
        self._config = folder / "dbhub.toml"
        place = self._engine.url
        dsn = f"postgres://{place.username}:none@127.0.0.1:{port}/{place.database}?sslmode=disable"
        self._config.write_text(self.TOOLS.format(dsn=json.dumps(dsn)))

    def server(self) -> McpServer:
        command = [_need(MODULES / "dbhub"), "--transport", "stdio", "--config", str(self._config)]
        return McpServer("sql", command=command, manifest="builtin:dbhub", tools=self.MANIFEST, **PATIENCE)

    def facts(self) -> list[tuple[int, str]]:
        """The orders."""
        with self._engine.connect() as db:
            return [(row[0], row[1]) for row in db.execute(text("SELECT id, item FROM orders ORDER BY id"))]


def _socket(url: str) -> Path:
    (socket,) = Path(str(make_url(url).query["host"])).glob(".s.PGSQL.*[0-9]")
    return socket


@asynccontextmanager
async def sql(folder: Path) -> AsyncIterator[Sql]:
    """A database with one order in it. It listens on a socket in a folder, and DBHub knows ports alone."""
    with database("postgresql", folder) as url:
        socket = _socket(url)
        async with CuttingProxy(f"unix://{socket}", tcp=True) as forwarding:
            yield Sql(url, folder, urlsplit(forwarding.url).port or 0)
