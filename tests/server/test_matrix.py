"""Every operation of the OpenAPI document with every kind of token, and tenants beside each other over all of them.

Both are made from the document that the server publishes, so a new operation is covered without anybody thinking of it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from saga_engine import Coordinator
from saga_engine.server import tokens
from saga_engine.server.identity import SCOPES
from saga_engine.server.settings import ServerSettings, Tenant
from tests.server.harness import ASK, BOOK, JSON, TOOLS, WAIT, Server, serving


class Op(NamedTuple):
    """An operation as the document describes it; ``scope`` empty: it needs no token, because it is signed."""

    method: str
    path: str
    scope: str
    has_body: bool


def operations(document: Mapping[str, Any]) -> list[Op]:
    """All operations; one that says nothing of whom it is for is an error."""
    found = []
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            needs = re.search(r"Needs the scope `(\w+)`\.", about["description"])
            assert (needs is None) == (about.get("security") == []), (method, path)
            found.append(Op(method.upper(), path, "" if needs is None else needs[1], "requestBody" in about))
    assert len(found) > 40
    return found


async def status_of(server: Server, op: Op, headers: Mapping[str, str], path: str = "", body: str = "{}") -> int:
    """The status of a request; of a stream no more is read."""
    data = {"content": body} if op.has_body else {}
    sent = {**(JSON if op.has_body else {}), **headers}
    where = path or re.sub(r"\{\w+\}", "none", op.path)
    async with server.client.stream(op.method, where, headers=sent, **data) as answer:
        return answer.status_code


@asynccontextmanager
async def bare(**settings: Any) -> AsyncIterator[tuple[Server, Coordinator]]:
    """A server without anything in it, which does not count requests."""
    chosen = ServerSettings(port=0, requests_per_s=1e6, burst=1_000_000, **settings)
    async with (
        Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator,
        serving(coordinator, chosen) as server,
    ):
        yield server, coordinator


async def given(server: Server, kind: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The headers of a request with one kind of token."""
    if kind == "none":
        return {}
    made, text = await server.desk.tokens.create(
        "Ada", [kind if kind in SCOPES else "admin"], tenant="red" if kind == "tenant" else "", expires_s=3600
    )
    if kind == "revoked":
        await server.desk.tokens.revoke(made.id)
    elif kind == "expired":
        monkeypatch.setattr(tokens, "_now_ms", lambda: made.expires_ms)
    elif kind == "wrong":
        text = text[:-1] + ("A" if text[-1] != "A" else "B")
    elif kind == "unknown":
        text = text.replace(made.id, "t00000000000")
    elif kind == "cut":
        text = text[:-1]
    elif kind in ("cookie", "other site", "no page"):
        signed = await server.client.post("/ui/sign-in", data={"token": text})
        server.client.cookies.clear()
        origin = {"cookie": server.url, "other site": "https://evil.example"}.get(kind)
        cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
        return cookie if origin is None else {**cookie, "origin": origin}
    elif kind == "token as cookie":
        return {"cookie": f"saga_token={text}", "origin": server.url}
    return {"authorization": f"{'Basic' if kind == 'basic' else 'Bearer'} {text}"}


UNKNOWN = ["none", "revoked", "expired", "wrong", "unknown", "cut", "basic", "token as cookie"]
KINDS = [*UNKNOWN, "tenant", "cookie", "other site", "no page", *SCOPES]


def allowed(op: Op, kind: str) -> set[int] | None:
    """The statuses that are right; None: any that is not a refusal of the caller."""
    if kind in UNKNOWN:
        return {401}
    if kind == "tenant":
        return {403}
    if kind in ("other site", "no page"):
        return None if op.method == "GET" else {403}
    return None if kind in (op.scope, "admin", "cookie") else {403}


@pytest.mark.parametrize("kind", KINDS)
async def test_every_operation_with_every_kind_of_token(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may is let in, and who may not is refused before anything is done; what is signed opens to no token."""
    async with bare() as (server, coordinator):
        headers = await given(server, kind, monkeypatch)
        for op in operations(server.document):
            status = await status_of(server, op, headers)
            right = allowed(op, kind)
            if not op.scope:
                assert status >= 400, (op, status)
            elif right is None:
                assert status not in (401, 403), (op, status)
                assert status < 500, (op, status)
            else:
                assert status in right, (op, status)
        if kind != "submit":
            assert not (await coordinator.search()).sagas


#: Requests that would act, by the end of their path; others are sent with an empty body.
BODIES = {
    "/cancel": "{}",
    "/resolve": '{"step_id": 1, "decision": "yes"}',
    "/amend": '{"steps": [{"step_id": 9, "tool": "book", "params": {"item": "x"}}]}',
    "/fork": '{"new_id": "forked"}',
    "/erase": '{"why": "a test"}',
    "/callbacks": '{"step_id": 1}',
    "/jobs": '{"action": "cancel", "where": {"since_ms": 0}}',
    "/events": '{"name": "paid", "key": "17", "payload": 1}',
    "/stops": '{"note": "a test"}',
    "/lift": "{}",
    "/sagas": '{"plan": {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "x"}}]}}',
}
THREE = ["", "blue", "red"]


def plan_of(kind: Mapping[str, Any], tenant: str) -> dict[str, Any]:
    """A plan whose every view names its tenant."""
    return {**kind, "goal": f"of-tenant-{tenant or 'own'}"}


async def standing(engine: Coordinator) -> Any:
    """All that a tenant has; jobs of all tenants are the server's, and only shown to their own."""
    heads = sorted((await engine.search()).sagas)
    events = await engine.events()
    documents = engine.store.documents()
    kept = {kind: [*await documents.names(kind)] for kind in ("template", "schedule", "gateway")}
    held = await engine.store.guard_store().stops()
    return [heads, [await engine.history(head.saga_id) for head in heads], events, kept, held]


@pytest.mark.parametrize("actor", THREE)
async def test_three_tenants_over_every_operation(actor: str) -> None:
    """Whatever an admin of one does, by ids of its own or of others, nothing of the others is shown or changes."""
    async with (
        Coordinator.open("memory://three", TOOLS, durability="relaxed") as own,
        Coordinator.open("memory://three?namespace=blue", TOOLS, durability="relaxed") as blue,
        Coordinator.open("memory://three?namespace=red", TOOLS, durability="relaxed") as red,
    ):
        engines = dict(zip(THREE, (own, blue, red), strict=True))
        settings = ServerSettings(
            port=0,
            requests_per_s=1e6,
            burst=1_000_000,
            tenants={name: Tenant(name, name) for name in THREE if name},
        )
        async with serving(own, settings, {"blue": blue, "red": red}) as server:
            for tenant, engine in engines.items():
                for saga_id, kind in (("ask", ASK), ("wait", WAIT), ("book", BOOK)):
                    plan = plan_of(kind, tenant)
                    await engine.submit(plan, saga_id=f"{saga_id}-{tenant or 'own'}", detach=saga_id != "book")
                await engine.wait(f"book-{tenant or 'own'}")
            others = {tenant: await standing(engine) for tenant, engine in engines.items() if tenant != actor}
            api = await server.api("admin", tenant=actor)
            for op in operations(server.document):
                for whose in THREE:
                    name = whose or "own"
                    ids = [f"ask-{name}", f"book-{name}", f"wait-{name}"] if "{saga_id}" in op.path else [name]
                    for each in ids:
                        path = re.sub(r"\{\w+\}", each, op.path)
                        body = next((text for end, text in BODIES.items() if op.path.endswith(end)), "{}")
                        data = {"content": body} if op.has_body else {}
                        headers = {**api.headers, **(JSON if op.has_body else {})}
                        async with server.client.stream(op.method, path, headers=headers, **data) as answer:
                            text = "" if "event-stream" in answer.headers["content-type"] else await answer.aread()
                        assert answer.status_code < 500, (op, each, text)
                        if "{saga_id}" in op.path and whose != actor:
                            assert answer.status_code >= 400, (op, each, text)
                        for tenant in others:
                            assert f"of-tenant-{tenant or 'own'}" not in str(text), (op, each)
            assert {tenant: await standing(engines[tenant]) for tenant in others} == others
