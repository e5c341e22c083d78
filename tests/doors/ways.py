"""Every way into the engine, as a function that has ``pay`` called through it and tells what the caller was shown.

A way gets an open coordinator and the params of the call. It returns once nothing of it runs any more, whatever came of
the call: done, refused, in doubt. To add a door, write its function and put it into ``WAYS``: each promise of
``test_doors.py`` is then asked of it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.shared.memory import create_client_server_memory_streams

from saga_engine import Coordinator
from saga_engine.errors import SagaError
from saga_engine.gateway.early import Early
from saga_engine.gateway.engine import EngineFace, engine_server
from saga_engine.gateway.server import Gateway
from saga_engine.gateway.work import Work
from tests.server.harness import serving
from tests.support.children import until
from tests.support.forker import READ_AT_START, run_python

#: The saga that is forked; it waits for an operator itself.
FORKED = "old"
#: What the plan asks that is to be amended.
QUESTION = "Shall we?"

Way = Callable[[Coordinator, Mapping[str, Any]], Awaitable[str]]


def step(params: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The step that pays."""
    return {"step_id": 7, "tool": "pay", "params": dict(params), **more}


def plan(*steps: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": list(steps), **more}


async def _plan(engine: Coordinator, params: Mapping[str, Any]) -> str:
    return json.dumps((await engine.run(plan(step(params)))).to_dict())


async def _session(engine: Coordinator, params: Mapping[str, Any]) -> str:
    async with engine.session("s") as session:
        return json.dumps(await session.call("pay", **params))


async def _http(engine: Coordinator, params: Mapping[str, Any]) -> str:
    async with serving(engine) as server:
        api = await server.api()
        answer = await api("POST", "/v1/sagas", {"plan": plan(step(params))})
        told = answer.json()
        if answer.status_code >= 400:
            return json.dumps(told)
        await engine.wait(told["saga_id"])
        return json.dumps([told, await api.get(f"/v1/sagas/{told['saga_id']}")])


async def _asked(served: Callable[..., Awaitable[Any]], ask: Callable[[Client], Awaitable[str]]) -> str:
    async with create_client_server_memory_streams() as (client_streams, server_streams):
        serving_ = asyncio.create_task(served(*server_streams))

        class Transport:
            async def __aenter__(self) -> Any:
                return client_streams

            async def __aexit__(self, *_: object) -> None:
                for stream in client_streams:
                    await stream.aclose()

        try:
            async with Client(Transport(), mode="auto", cache=None) as client:
                return await ask(client)
        finally:
            for stream in client_streams:
                await stream.aclose()
            await serving_


async def _gateway(engine: Coordinator, params: Mapping[str, Any]) -> str:
    async def ask(client: Client) -> str:
        called = await client.call_tool("pay", dict(params))
        report = await client.call_tool("saga_done", {}) if not called.is_error else called
        return called.model_dump_json() + report.model_dump_json()

    return await _asked(Gateway(engine, Work(engine, "desk", kept=True, hold_s=0.0)).serve, ask)


async def _engine_face(engine: Coordinator, params: Mapping[str, Any]) -> str:
    async def ask(client: Client) -> str:
        told = await client.call_tool("saga_submit", {"plan": plan(step(params))})
        body = told.structured_content or {}
        if "saga_id" not in body:
            return told.model_dump_json()
        shown = await client.call_tool("saga_show", {"saga_id": body["saga_id"], "wait_s": 60})
        return told.model_dump_json() + shown.model_dump_json()

    return await _asked(Early(engine_server, EngineFace(engine, "kim").opened).serve, ask)


async def _schedule(engine: Coordinator, params: Mapping[str, Any]) -> str:
    await engine.templates.put("t", plan(step(params)))
    await engine.schedules.put("nightly", template="t", cron="0 3 * * *")
    saga_id = await engine.schedules.trigger("nightly")
    return json.dumps((await engine.wait(saga_id)).to_dict())


async def _child(engine: Coordinator, params: Mapping[str, Any]) -> str:
    child = {"step_id": "trip", "saga": {"plan": plan(step(params))}}
    return json.dumps((await engine.run(plan(child))).to_dict())


async def _fallback(engine: Coordinator, params: Mapping[str, Any]) -> str:
    return json.dumps((await engine.run(plan(step(params, tool="wire", fallback={"tool": "pay"})))).to_dict())


async def _amend(engine: Coordinator, params: Mapping[str, Any]) -> str:
    question = {"step_id": 1, "ask": {"question": QUESTION, "options": ["yes", "no"]}}
    await engine.submit(plan(question), saga_id="grows")

    async def asked() -> bool:
        return bool((await engine.show("grows")).body.get("questions"))

    await until(asked)
    await engine.amend("grows", [step(params)], wait=False)

    async def added() -> bool:
        return bool([record for record in await engine.history("grows") if record["k"] == "StepsAdded"])

    await until(added)
    return json.dumps((await engine.resolve("grows", 1, "yes")).to_dict())


async def _fork(engine: Coordinator, params: Mapping[str, Any]) -> str:
    seen = {"step_id": 1, "tool": "look"}
    fails = {"step_id": 7, "tool": "wire", "params": {"amount": 1, "card": "none"}, "depends_on": [1]}
    await engine.run(plan(seen, fails, on_failure="pause"), saga_id=FORKED)
    found = await engine.fork(FORKED, plan=plan(seen, step(params, depends_on=[1])))
    return json.dumps(found.to_dict())


async def _cli(_: Coordinator, params: Mapping[str, Any]) -> str:
    """The command line, as a process in the same folder: it finds the same ``saga.toml``."""
    tools = Path(__file__).with_name("shop.py")
    command = ("-m", "saga_engine", "submit", "-", "--tools", str(tools), "--json")
    text = json.dumps(plan(step(params)))
    env = {name: value for name, value in os.environ.items() if name.startswith(READ_AT_START)}
    env |= {"PYTHONPATH": str(Path(__file__).parents[2]), "NO_COLOR": "1"}  # as the forker has them
    env |= {"SAGA_STORE": "memory://", "CARD": "4000-hush"}
    ran = await asyncio.to_thread(run_python, *command, cwd=Path(os.getcwd()), env=env, stdin=text, timeout_s=120)  # noqa: PTH109
    return "".join(str(part) for part in ran)


WAYS: dict[str, Way] = {
    "plan": _plan,
    "session": _session,
    "CLI": _cli,
    "HTTP": _http,
    "gateway": _gateway,
    "--engine": _engine_face,
    "schedule": _schedule,
    "child": _child,
    "fallback": _fallback,
    "amend": _amend,
    "fork": _fork,
}


async def tried(way: str, engine: Coordinator, params: Mapping[str, Any]) -> str:
    """What the caller was shown, be it an error."""
    working = asyncio.create_task(engine.work())
    try:
        return await WAYS[way](engine, params)
    except SagaError as error:
        return f"{error} {json.dumps(error.to_dict())}"
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
