"""What ``saga init`` writes, and the guards that it and ``saga doctor`` recommend: each once, with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from saga_engine.plan.operator_limits import Limits
    from saga_engine.tools.registry import ToolRegistry


class Guard(NamedTuple):
    """A recommended line of ``saga.toml``."""

    table: str
    name: str
    value: str
    why: str


RECOMMENDED: Final = (
    Guard("limits", "deadline_s", "120", "a saga that hangs is undone after two minutes, and not found the next day"),
    Guard("limits", "max_calls", "30", "an agent that loops is stopped, retries included"),
    Guard(
        'tools."*"',
        "breaker",
        "{ failures = 3, open_s = 30 }",
        "a partner that is down is left alone for 30 s after 3 failures in a row; undos still pass",
    ),
    Guard(
        'tools."*"',
        "dedupe_ttl_s",
        "300",
        "of writes: an identical call of another saga within 5 minutes gets the first result and is not made. Nothing\n"
        "# is paid twice; so that two customers may order the same, a param has to say whose call it is (customer)",
    ),
)

_HEAD: Final = """\
# The settings of this folder; `saga doctor` examines them and shows where each comes from.
[saga]
tools = ["tools.py"]
"""
_TABLES: Final = {
    "limits": "Of each saga; a plan can only tighten them. One that waits for days needs more.",
    'tools."*"': "Of every tool; a table [tools.NAME] changes one of them.",
}


def recommended_toml() -> str:
    """The recommended tables, each line with its reason."""
    lines: list[str] = []
    table = ""
    for guard in RECOMMENDED:
        if guard.table != table:
            table = guard.table
            lines += ["", f"# {_TABLES[table]}", f"[{table}]"]
        lines += [f"# {guard.why}", f"{guard.name} = {guard.value}"]
    return "\n".join(lines[1:]) + "\n"


def missing_guards(limits: Limits, registry: ToolRegistry) -> Iterator[str]:
    """In words: which of the recommended guards these settings lack."""
    unset = [guard.name for guard in RECOMMENDED if guard.table == "limits" and not getattr(limits, guard.name)]
    if unset:
        yield f"[limits] has no {' and no '.join(unset)}"
    tools = [tool for name in registry.names() if (tool := registry.get(name)) is not None]
    specs = {tool.name: registry.spec(tool.name) for tool in tools}
    undos = {name for spec in specs.values() if spec is not None for name in (spec.undo, spec.undo_absent)}
    for name, word in (("breaker", "a breaker"), ("dedupe_ttl_s", "de-duplication")):
        lacking = [
            tool.name
            for tool in tools
            if getattr(tool, name) is None
            and tool.name not in undos  # no guard may hold an undo
            and (name == "breaker" or tool.effect == "write")
        ]
        if lacking:
            yield f"without {word}: {_named(lacking)}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


_TOOLS: Final = '''\
"""The tools of this folder: each names the one that takes its effect back, and honours the key of its call."""

import sqlite3

from saga_engine import ToolError, tool

# raised="not-done": what this module raises itself says that the call was not done.


def _orders() -> sqlite3.Connection:
    """A stand-in for your partners: it knows a request again by its key, so a repeated one does nothing."""
    db = sqlite3.connect("orders.db", isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, key UNIQUE, what, state)")
    return db


def _order(key: str, what: str) -> int:
    db = _orders()
    db.execute("INSERT OR IGNORE INTO orders (key, what, state) VALUES (?, ?, 'ordered')", (key, what))
    return db.execute("SELECT number FROM orders WHERE key = ?", (key,)).fetchone()[0]


def _cancel(number: int) -> None:
    _orders().execute("UPDATE orders SET state = 'cancelled' WHERE number = ?", (number,))


@tool(undo="release", raised="not-done", timeout_s=10)
def reserve(customer: str, item: str, idempotency_key: str) -> dict:
    """Reserve an item for a customer in the warehouse. Returns the reservation."""
    return {"reservation": _order(idempotency_key, f"{item} for {customer}")}


@tool(tolerates_absence=True, timeout_s=10)
def release(reservation: int, idempotency_key: str) -> None:
    """Release a reservation. Releasing twice is harmless."""
    _cancel(reservation)


@tool(undo="refund", raised="not-done", timeout_s=10)
def charge(customer: str, amount: int, idempotency_key: str) -> dict:
    """Charge a customer, in euros. Returns the payment."""
    if amount > 500:
        raise ToolError("the card's limit is 500", error_code="declined", suggestion="charge less")
    return {"payment": _order(idempotency_key, f"{amount} EUR of {customer}")}


@tool(tolerates_absence=True, timeout_s=10)
def refund(payment: int, idempotency_key: str) -> None:
    """Refund a payment. Refunding twice is harmless."""
    _cancel(payment)
'''
_PLAN: Final = """\
{
  "goal": "an item for a customer",
  "steps": [
    { "step_id": "item", "tool": "reserve", "params": { "customer": "$input.customer", "item": "$input.item" } },
    { "step_id": "pay", "tool": "charge", "params": { "customer": "$input.customer", "amount": "$input.amount" } }
  ]
}
"""
_TEST: Final = '''\
"""The plan against the real tools, in a folder of its own: all of it happens, or nothing of it stays."""

import asyncio
import sqlite3
from pathlib import Path

import tools

from saga_engine import Coordinator, SagaResult

PLAN = Path(__file__).with_name("plan.json")


async def run(amount: int) -> SagaResult:
    async with Coordinator.open("embedded://.saga", [tools.reserve, tools.release, tools.charge, tools.refund]) as it:
        return await it.run(PLAN, input={"customer": "ada", "item": "lamp", "amount": amount})


def orders() -> list[tuple[str, str]]:
    return sqlite3.connect("orders.db").execute("SELECT what, state FROM orders ORDER BY number").fetchall()


def test_all_of_it_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert asyncio.run(run(40)).status == "COMPLETED"
    assert orders() == [("lamp for ada", "ordered"), ("40 EUR of ada", "ordered")]


def test_nothing_of_it_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = asyncio.run(run(900))
    assert (found.status, found.report["clean"]) == ("COMPENSATED", True)
    assert orders() == [("lamp for ada", "cancelled")]
'''
_IGNORED: Final = ".saga/\norders.db\n__pycache__/\n"


def starter_files() -> Mapping[str, str]:
    """The files of a new folder, by name."""
    return {
        "saga.toml": f"{_HEAD}\n{recommended_toml()}",
        "tools.py": _TOOLS,
        "plan.json": _PLAN,
        "test_plan.py": _TEST,
        ".gitignore": _IGNORED,
    }
