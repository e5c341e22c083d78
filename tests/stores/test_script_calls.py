"""What a group commit asks its server for: the commands of each kind of entry, counted by the server itself.

Whoever adds one to an entry finds it here, and says what it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.ports import Creation, Entry
from saga_engine.stores import open_store
from tests.support.chains import back, chain, forth

FEW, MANY = 8, 40
TERMS = ["*", "tool:flight", "tool:hotel", "tool:payment"]
BEGIN = Entry("", 0, 0, [b"r"], "RUNNING", b"{}", terms=TERMS, creation=Creation("d", owned=True))
NEXT = Entry("", 1, 1, [b"r"])
END = Entry("", 2, 1, [b"r"], "COMPLETED", b"{}", release=True, keep_ms=600_000)
LARGE = {"v": b"1"}


@pytest.fixture
async def store(tmp_path):
    store = open_store(f"embedded://{tmp_path}")
    await store.open()
    await store.open_lease("A", 600_000)
    yield store
    await store.close()


def ids_of(store: Any, count: int) -> Sequence[str]:
    """So many ids of one partition."""
    found = (f"s{number}" for number in range(10**6))
    return [saga_id for saga_id in found if store.partition_of(saga_id) == 0][:count]


async def calls_of(store: Any, entries: Sequence[Entry], code: str = "ok") -> Counter[str]:
    """The commands that the script runs for these entries."""
    await store._plain("CONFIG", "RESETSTAT")
    reply = await store.append("A", entries)
    assert {ack.code for ack in reply.acks} == {code}
    said = str(await store._plain("INFO", "commandstats"), "utf-8")
    found = (line.removeprefix("cmdstat_").split(":calls=") for line in said.splitlines() if ":calls=" in line)
    counted = Counter({name: int(rest.split(",")[0]) for name, rest in found})
    return counted - Counter({"config|resetstat": 1, "evalsha": 1})


async def each(store: Any, *journal: Entry, code: str = "ok") -> Sequence[dict[str, float]]:
    """For each entry of a journal the commands that one more saga of the partition costs."""
    groups = ids_of(store, FEW + MANY)[:FEW], ids_of(store, FEW + MANY)[FEW:]
    found = []
    for at, entry in enumerate(journal):
        last = at == len(journal) - 1
        few, many = [
            await calls_of(store, [entry._replace(saga_id=name) for name in ids], code if last else "ok")
            for ids in groups
        ]
        names = sorted(few.keys() | many.keys())
        found.append({name: gap / (MANY - FEW) for name in names if (gap := many[name] - few[name])})
    return found


@pytest.fixture(autouse=True)
async def warm(store) -> None:
    """The script is known, and what a partition has once is there."""
    names = ids_of(store, 2 * (FEW + MANY))[FEW + MANY :]
    for entry in (BEGIN, NEXT, END):
        await store.append("A", [entry._replace(saga_id=name) for name in names])


async def test_a_saga_of_three_steps(store) -> None:
    """Its four appends, beside others of its partition: 13 commands, and at most 17 once had been."""
    begun, second, third, end = await each(store, BEGIN, NEXT, NEXT._replace(seq=2), END._replace(seq=3))
    assert begun == {"exists": 1, "hset": 1, "rpush": 1, "set": 1}
    assert second == third == {"hmget": 1, "rpush": 1}
    assert end == {"hmget": 1, "hset": 1, "pexpire": 2, "rpush": 1}
    assert sum(map(sum, (entry.values() for entry in (begun, second, third, end)))) <= 13


@pytest.mark.parametrize(
    ("journal", "expected"),
    [
        pytest.param(
            [BEGIN, NEXT._replace(values=LARGE)],
            {"hmget": 1, "hset": 1, "hsetnx": 1, "llen": 1, "rpush": 1},
            id="a large value",
        ),
        pytest.param(
            [BEGIN, NEXT._replace(status="COMPENSATING", summary=b"{}")],
            {"hmget": 1, "hset": 1, "rpush": 1},
            id="a status",
        ),
        pytest.param(
            [BEGIN, NEXT._replace(release=True, due_ms=1)],
            {"hmget": 1, "hset": 1, "rpush": 1, "zadd": 1},
            id="released",
        ),
        pytest.param([BEGIN, NEXT._replace(records=[b"r"] * 30)], {"hmget": 1, "rpush": 1}, id="many records"),
    ],
)
async def test_other_entries(store, journal: Sequence[Entry], expected: dict[str, float]) -> None:
    """What stands in an entry beside its records costs what it says, and no more."""
    assert (await each(store, *journal))[-1] == expected


async def test_a_repeat_and_a_conflict(store) -> None:
    """Seldom, and the only entries whose records are taken back."""
    again = {"hmget": 1, "lrange": 1, "ltrim": 1, "rpush": 1}
    assert (await each(store, BEGIN, NEXT, NEXT))[-1] == again
    ahead = NEXT._replace(seq=7)
    assert (await each(store, ahead, code="conflict"))[-1] == {"hmget": 1, "ltrim": 1, "rpush": 1}


async def test_what_a_partition_costs_once_for_each_commit(store) -> None:
    """However many entries it has there: the clock, the lease, the stops, and one command for each sorted set."""
    name = ids_of(store, 2 * (FEW + MANY) + 1)[-1]
    journal = (BEGIN, NEXT, END)
    alone = [(await calls_of(store, [entry._replace(saga_id=name)])).total() for entry in journal]
    one_more = [sum(found.values()) for found in await each(store, *journal)]
    assert [whole - more for whole, more in zip(alone, one_more, strict=True)] == [5, 3, 7]


async def test_a_whole_saga_by_the_coordinator(tmp_path) -> None:
    """The entries above are those that the engine makes."""
    store = open_store(f"embedded://{tmp_path / 'other'}")
    async with Coordinator.open(store, [forth, back], lease_s=3600) as coordinator:
        await coordinator.run(chain("forth", "forth", "forth"))
        await store._plain("CONFIG", "RESETSTAT")
        await coordinator.run(chain("forth", "forth", "forth"))
        said = str(await store._plain("INFO", "commandstats"), "utf-8")
    calls = {
        line.split(":")[0].removeprefix("cmdstat_"): int(line.split("calls=")[1].split(",")[0])
        for line in said.splitlines()
        if "calls=" in line
    }
    assert {name: calls.get(name) for name in ("rpush", "ltrim", "llen", "evalsha")} == {
        "rpush": 4,
        "ltrim": None,
        "llen": None,
        "evalsha": 4,
    }
