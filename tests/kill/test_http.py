"""HTTP tools under the kill matrix: the process dies at each request, before and after its effect, and at appends.

The server is in this process and outlives every kill, as the outside world does. A fresh process resumes; then the
server's account of what happened is compared with the plan and with the engine's report.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest

from saga_engine.testing.faulty_http import Act, MisbehavingServer, Received, done, refused
from tests.kill.processes import ROOT
from tests.support.forker import the_forker
from tests.support.servers import GIVE_UP_S, EmbeddedFolder

#: Requests of the plan that change something: two bookings, the one that fails, two undos.
REQUESTS = 5
_TOOLS = """
[http.book]
method = "POST"
url = "{url}/book"
body = {{ item = "{{item}}" }}
params = {{ item = "string" }}
output = "$.order"
{settling}

[http.cancel]
method = "POST"
url = "{url}/cancel"
body = {{ item = "{{ref}}" }}
params = {{ ref = "string" }}
{settling}

[http.fail]
method = "POST"
url = "{url}/fail"
body = {{ item = "{{item}}" }}
params = {{ item = "string" }}
{settling}

[http.find]
url = "{url}/find"
key = {{ query = "ref" }}
absent = [404]
output = "$.order"
"""
_RETRY = "retry = { max_attempts = 4, base_s = 0.001, max_s = 0.002 }\n"
#: How a doubt is settled: by sending again under the same key, or by asking.
SETTLING = {
    "keyed": _RETRY + 'key = { header = "Idempotency-Key" }',
    "probed": _RETRY + 'headers = { X-Ref = "{idempotency_key}" }\nprobe = "find"',
}
_numbers = itertools.count()


def _step(number: int, tool: str) -> dict[str, Any]:
    undo = {"tool": "cancel", "params": {"ref": f"$output.step_{number}.ref"}}
    return {"step_id": number, "tool": tool, "params": {"item": f"i{number}"}, "rollback": undo}


PLANS = {
    "succeeds": {"steps": [_step(1, "book"), _step(2, "book"), _step(3, "book")]},
    "fails": {"steps": [_step(1, "book"), _step(2, "book"), _step(3, "fail")]},
}


class Point(NamedTuple):
    """Where the first process dies: at the n-th request that changes something, or at a fault of its store."""

    request: int = 0
    when: str = ""
    fault: str = ""


class World:
    """A server, and one saga that is driven against it by processes that die."""

    def __init__(self, store_url: str, variant: str, plan: str) -> None:
        number = next(_numbers)
        self.variant = variant
        self.plan = plan
        self.case = {
            "url": f"{store_url}?namespace=http{variant}{number}",
            "saga_id": f"saga-{number}",
            "plan": PLANS[plan],
        }
        self.server = MisbehavingServer(honours_keys=variant == "keyed", key_of=_key_of)
        self.point = Point()
        self._pid: Future[int] = Future()
        self._requests = 0

    async def killed_and_resumed(self, point: Point) -> tuple[bool, dict[str, Any] | None]:
        """Whether it was killed at this point, and what the process said that resumed it."""
        self.point = point
        async with self.server as server:
            for path in ("/book", "/cancel"):
                server.script(path, lambda request: done({"order": {"ref": request.json["item"]}}))
            # A 409 would not settle the doubt of a keyed call: it may mean that the first request is still at work.
            server.script("/fail", refused(422, {"message": "no rooms"}))
            server.script("/find", self._find)
            server.before_effect = lambda request: self._die(request, "before")
            server.after_effect = lambda request: self._die(request, "after")
            toml = _TOOLS.format(url=server.url, settling=SETTLING[self.variant])
            status, told = await self._run(part="submit", toml=toml, fault=point.fault)
            if status != -signal.SIGKILL:
                return False, told
            status, told = await self._run(part="resume", toml=toml)
            assert status == 0
            return True, told

    async def _run(self, **more: str) -> tuple[int, dict[str, Any] | None]:
        pid = self._pid = Future()
        command = ("-m", "tests.kill.http_child", json.dumps(self.case | more))
        run = the_forker().run
        status, out, err = await asyncio.to_thread(run, command, ROOT, os.environ, on_pid=pid.set_result)
        assert status in (0, -signal.SIGKILL), err
        return status, json.loads(out) if out else None

    def _die(self, request: Received, when: str) -> None:
        if request.method != "POST":
            return
        self._requests += when == "before"
        if self._requests == self.point.request and when == self.point.when:
            os.kill(self._pid.result(GIVE_UP_S), signal.SIGKILL)
            if when == "before":
                raise ConnectionResetError

    def _find(self, request: Received) -> Act:
        found = self.server.effects_of(request.query.removeprefix("ref=").replace("%3A", ":"))
        if not found:
            return refused(404)
        return refused(200, json.loads(found[0].answer))

    def breaches(self, told: dict[str, Any] | None) -> list[str]:
        """Everything that is wrong with the world after the saga has ended."""
        did = [(effect.request.path, effect.request.json["item"]) for effect in self.server.effects]
        if told is None:
            return [f"nothing is journalled, and this happened: {did}"] if did else []
        found = [f"{what} happened {count} times" for what, count in Counter(did).items() if count > 1]
        booked = [item for path, item in did if path == "/book"]
        cancelled = [item for path, item in did if path == "/cancel"]
        if self.plan == "succeeds":
            expected, right = "COMPLETED", (["i1", "i2", "i3"], [])
        else:
            expected, right = "COMPENSATED", (["i1", "i2"], ["i2", "i1"])
        if (booked, cancelled) != right:
            found.append(f"booked {booked}, cancelled {cancelled}")
        if told["status"] != expected:
            found.append(f"it ended {told['status']}")
        if self.plan == "fails" and (not told["report"]["clean"] or sorted(told["report"]["compensated"]) != [1, 2]):
            found.append(f"the report says {told['report']}")
        return found


def _key_of(request: Received) -> str:
    return request.headers.get("idempotency-key") or request.headers.get("x-ref", "")


async def judged(store_url: str, variant: str, plan: str, points: Sequence[Point]) -> None:
    """Die at each point, resume, and look at the world; two at a time."""
    places = asyncio.Semaphore(2)

    async def one(point: Point) -> tuple[bool, list[str]]:
        async with places:
            world = World(store_url, variant, plan)
            killed, told = await world.killed_and_resumed(point)
            return killed, world.breaches(told)

    async with asyncio.TaskGroup() as group:
        tasks = {point: group.create_task(one(point)) for point in points}
    found = {point: task.result() for point, task in tasks.items()}
    assert [point for point, (killed, _) in found.items() if not killed] == []
    assert {point: what for point, (_, what) in found.items() if what} == {}


@pytest.mark.parametrize("variant", list(SETTLING))
async def test_killed_at_every_request(embedded: EmbeddedFolder, variant: str) -> None:
    """Before or after any request of a saga that fails: no effect twice, none lost, and the report agrees."""
    points = [Point(n, "before") for n in range(1, REQUESTS + 1)]
    points += [Point(n, "after") for n in range(1, REQUESTS + 1) if n != 3]  # the third is refused: it has no effect
    await judged(embedded.url, variant, "fails", points)


@pytest.mark.parametrize("variant", list(SETTLING))
async def test_killed_at_some_appends(embedded: EmbeddedFolder, variant: str) -> None:
    """The same around the journal's writes, for a saga that succeeds."""
    points = [
        Point(fault=f"append:{n}:{when}") for n, when in ((1, "before"), (1, "after"), (2, "before"), (3, "after"))
    ]
    await judged(embedded.url, variant, "succeeds", points)
