"""What is sealed, who can open it, and that nothing of it is readable anywhere in a server's data."""

import asyncio
import base64
import logging
import uuid
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from prometheus_client import generate_latest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.api.stops import stop
from saga_engine.errors import EraseRefused, KeyMissing, KeyRefused, SagaErased, SagaExists, SealBroken, SettingInvalid
from saga_engine.hooks.card_hook import CardHook
from saga_engine.hooks.links import Links
from saga_engine.hooks.log import LogHook
from saga_engine.hooks.webhook import WebhookHook
from saga_engine.ports import Creation, Document, Entry, Escalation
from saga_engine.privacy.config import keyring_of
from saga_engine.privacy.keyring import Keyring, parse_keys
from saga_engine.privacy.sealed_store import SealedStore
from saga_engine.settings import load
from saga_engine.stores import open_store
from saga_engine.telemetry import Metrics, Spans
from saga_engine.telemetry.gauges import gauges_of
from saga_engine.testing.faulty_http import MisbehavingServer, done
from tests.hooks.questions import SECRET
from tests.support.servers import DebianRedis, until
from tests.telemetry.receiver import Receiver, receiving

K1, K2 = bytes(range(32)), bytes(range(32, 64))
KEYS = {"k1": K1}
LONG_MS = 600_000


def marker(what: str) -> str:
    return f"mk{what}{uuid.uuid4().hex[:12]}"


async def opened(url: str, keys) -> SealedStore:
    store = SealedStore(open_store(url), None if keys is None else Keyring(keys))
    await store.open()
    return store


def begun(saga_id: str, *records: bytes) -> Entry:
    return Entry(saga_id, 0, 0, list(records), "RUNNING", b'{"goal":"g"}', creation=Creation("d", owned=True))


@pytest.fixture
def url(shared_folder):
    return f"{shared_folder.url}?namespace={uuid.uuid4().hex}"


# --- markers ---------------------------------------------------------------------------------------------------------


def world(m: dict, state: dict) -> list:
    """Tools whose params, results, images and errors hold markers."""

    @tool(effect="read")
    def price_of(item: str) -> dict:
        return {"price": state["price"]}

    @tool(before=price_of, undo="set_price", keyed=True)
    def set_price(item: str, price: str) -> dict:
        state["price"] = price
        return {"price": price}

    @tool(undo="give_back", resource="room:{room}", dedupe_ttl_s=3600)
    def book(room: str, guest: str) -> dict:
        return {"booked": m["output"], "big": m["big"] + "x" * 50_000}

    @tool
    def give_back(room: str) -> dict:
        return {"undone": m["undo"]}

    @tool(effect="read")
    def fail(why: str) -> dict:
        raise ToolError(f"cannot: {m['error']}", retryable=False)

    @tool(effect="read")
    def break_down(item: str) -> dict:
        raise KeyError(item, m["cause"]) from RuntimeError(m["cause"])

    return [price_of, set_price, book, give_back, fail, break_down]


def steps(m: dict) -> list:
    room = {"room": m["lock"]}
    return [
        {"step_id": "price", "tool": "set_price", "params": {"item": m["item"], "price": m["after"]}},
        {"step_id": "book", "tool": "book", "params": {**room, "guest": m["param"]},
         "rollback": {"tool": "give_back", "params": room}},
        {"step_id": "ask", "ask": {"question": m["question"], "options": [m["option"], "no"]}},
        {"step_id": "wait", "wait": {"event": "paid", "key": m["eventkey"]}},
        {"step_id": "broken", "tool": "break_down", "params": {"item": m["item"]}, "retry": {"max_attempts": 1},
         "on_error": "continue"},
        {"step_id": "fail", "tool": "fail", "params": {"why": "$input.why"}},
    ]  # fmt: skip


MARKERS = ("param", "output", "error", "goal", "note", "question", "option", "event", "before", "after", "item", "kept",
           "big", "template", "lock", "name", "tag", "stop", "eventkey", "undo", "input", "eventid", "answer",
           "cause")  # fmt: skip


def found_in(folder: str, m: dict) -> list:
    """The markers in the files of a server; there must be some with data."""
    files = [(path, path.read_bytes()) for path in Path(folder).rglob("*") if path.is_file()]
    assert any(b"saga:meta" in data for _, data in files)
    return [(path, what) for path, data in files for what, text in m.items() if text.encode() in data]


class Told(NamedTuple):
    """Who is told of the sagas outside of the store: an OTLP receiver, webhooks, Prometheus."""

    otlp: Receiver
    webhooks: MisbehavingServer
    spans: Spans
    metrics: Metrics

    async def said(self, engine: Coordinator) -> list[tuple[str, str]]:
        """All that they got, as text."""
        await asyncio.to_thread(self.spans.close)
        assert {"saga", "question ask", "invoke_workflow", "execute_tool fail"} <= {got.name for got in self.otlp.spans}
        assert {request.path for request in self.webhooks.received} == {"/hook", "/card"}
        sent = [f"{request.query} {request.headers} {request.body.decode()}" for request in self.webhooks.received]
        gauges = gauges_of(await engine.overview(), await engine.tool_stats())
        shown = "".join(generate_latest(each).decode() for each in (self.metrics.registry, gauges))
        assert 'saga_questions_total{kind="ask"} 1.0' in shown
        spans = b"".join(self.otlp.bodies).decode("utf-8", "replace")
        assert "saga.answer" in spans
        return [("a span", spans), ("a webhook", "\n".join(sent)), ("the metrics", shown)]


@asynccontextmanager
async def told_of():
    with receiving() as otlp:
        async with MisbehavingServer() as webhooks:
            for path in ("/hook", "/card"):
                webhooks.script(path, *[done()] * 9)
            spans = Spans(otlp.url, delay_s=0.01, grace_s=0)
            yield Told(otlp, webhooks, spans, Metrics())


def hooks(told: Told) -> list:
    """Those of operators: the log, a webhook and a chat, both with links."""
    links = Links("https://saga.example.com", "k" * 40)
    return [
        LogHook(),
        WebhookHook(f"{told.webhooks.url}/hook", SECRET, links=links, pages=links),
        CardHook(f"{told.webhooks.url}/card", "slack", links),
    ]


def stumbling(saga_id: str, record: object) -> None:
    """An observer that fails, and quotes all that it was given."""
    raise RuntimeError(f"cannot take {record}")


def logged(record: logging.LogRecord) -> str:
    """A record as any handler could write it: its text, its traceback, and what it brings along."""
    return f"{logging.Formatter().format(record)} {record.__dict__}"


@pytest.mark.debian_redis
async def test_markers_are_nowhere_in_a_server(caplog):
    """No text of sagas, events, messages and guards is in a key, AOF, RDB, replica, log, span, webhook or metric."""
    m = {what: marker(what) for what in MARKERS}
    with (
        DebianRedis(tcp=True) as server,
        DebianRedis(replicaof=f"127.0.0.1 {server.port}") as replica,
        caplog.at_level(logging.DEBUG, logger="saga_engine"),
    ):
        raw, copy = server.client(), replica.client()
        folders = [client.config_get("dir")["dir"] for client in (raw, copy)]
        tools = world(m, {"price": m["before"]})
        async with (
            told_of() as told,
            Coordinator.open(
                server.url,
                tools,
                privacy=KEYS,
                on_escalation=hooks(told),
                spans=told.spans,
                meters=[told.metrics],
                observers=[stumbling],
            ) as engine,
        ):
            plan = {"name": m["name"], "goal": m["goal"], "on_failure": "compensate", "steps": steps(m)}
            given = {"input": {"why": m["input"]}, "tags": [m["tag"]], "saga_id": "s1"}
            assert (await engine.run(plan, **given)).status == "ESCALATED"
            await stop(engine.store, tool="other", by="me", note=m["stop"])
            for library in ("mcp.client.session", "client", "asyncio"):
                complaint = f"it failed\n{m['cause']}" if library == "asyncio" else "it failed"
                logging.getLogger(library).error(complaint, exc_info=ValueError(m["cause"]))
            await engine.send_event("unheard", "k", {"said": m["kept"]})
            await engine.send_event("paid", m["eventkey"], {"said": m["event"]}, event_id=m["eventid"])
            shown = await engine.resolve("s1", "ask", m["option"], by="me", note=m["note"])
            assert shown.status == "COMPENSATED"
            story = msgspec.json.encode(await engine.history("s1", full=True)).decode()
            absent = {what for what in MARKERS if m[what] not in story}
            assert absent == {"kept", "stop", "template", "answer"}
            waits = {"steps": [{"step_id": "wait", "wait": {"event": "said", "key": m["eventkey"]}}]}
            await engine.submit(waits, saga_id="s2")
            async for record in engine.follow("s2"):
                if record["k"] == "StepWaiting":
                    break
            for _ in range(2):  # the same again is known by its sealed form
                await engine.answer_wait("s2", "wait", {"said": m["answer"]})
            assert (await engine.wait("s2")).status == "COMPLETED"
            await engine.templates.put("t1", {"goal": m["template"], "steps": steps(m)[:1]})
            assert len(await engine.events()) == 3
            assert (await engine.templates.get("t1@1")).version == 1
            found = await engine.search(tags=[m["tag"]], name=m["name"])
            assert [each.saga_id for each in found.sagas] == ["s1"]
            for where, text in await told.said(engine):
                assert not [what for what, each in m.items() if each in text], where
        until(lambda: copy.info("replication").get("master_link_status") == "up", "the replica")
        raw.wait(1, 30_000)
        copy.save()
        raw.save()
        for folder in folders:
            assert not found_in(folder, m)
        for key in raw.scan_iter():
            kept = key + raw.dump(key)
            assert not [what for what, text in m.items() if text.encode() in kept], key
        assert raw.exists(b"saga:meta")
    for line in ("saga show s1", "step broken: the tool 'break_down'", "'stumbling' failed on", "it failed"):
        assert any(line in each.getMessage() for each in caplog.records), line
    assert not [each for each in caplog.records if any(text in logged(each) for text in m.values())]


def asked(m: dict) -> dict:
    step = {"step_id": "ask", "ask": {"question": m["question"], "options": [m["option"], "no"]}}
    return {"name": m["name"], "goal": m["goal"], "steps": [step]}


@pytest.mark.parametrize("payloads", [None, True])
async def test_an_operator_may_have_payloads_sent(url, payloads):
    """A webhook of a sealed store has what its receiver needs to find the question, and all of it only by choice."""
    m = {what: marker(what) for what in ("name", "goal", "question", "option")}
    async with told_of() as told:
        escalation = Escalation(hooks(told), payloads=payloads)
        async with Coordinator.open(url, [], privacy=KEYS, on_escalation=escalation) as engine:
            await engine.run(asked(m), saga_id="s1")
        (sent,) = [msgspec.json.decode(got.body) for got in told.webhooks.received if got.path == "/hook"]
        (card,) = [got.body.decode() for got in told.webhooks.received if got.path == "/card"]
    assert sent["type"] == "saga.question"
    assert sent["page"] == "https://saga.example.com/ui/sagas/s1"
    assert sent["page"] in card
    if payloads:
        assert (sent["data"]["goal"], sent["data"]["options"]) == (m["goal"], [m["option"], "no"])
        assert m["question"] in card
        assert sent["links"].keys() == {m["option"], "no"}
    else:
        del sent["data"]["asked_ms"]
        assert sent["data"] == {
            "saga_id": "s1", "question_id": "ask:f:1", "step_id": "ask", "direction": "forward", "kind": "ask",
            "round": 0, "sealed": True,
        }  # fmt: skip
        assert "links" not in sent


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_a_missing_key_leaves_a_saga_untouched(url):
    """Without its key nobody reads, writes or posts to a saga; a list still shows its id, state and times."""
    store = await opened(url, KEYS)
    await store.open_lease("A", LONG_MS)
    await store.append("A", [begun("s1", b'{"k":"SagaStarted","at":5}')])
    blind = await opened(url, None)
    with pytest.raises(KeyMissing):
        await blind.read("s1")
    with pytest.raises(KeyMissing):
        await blind.post("s1", b'{"id":"m"}')
    with pytest.raises(KeyMissing):
        await blind.append("A", [begun("s2", b"r")])
    with pytest.raises(KeyMissing):
        await blind.documents().write("template", Document("t", 0, b"{}"))
    head = await blind.head("s1")
    assert (head.saga_id, head.status, head.length) == ("s1", "RUNNING", 1)
    assert b'"g"' not in head.summary
    with pytest.raises(KeyMissing, match="k1"):
        await opened(url, {"k2": K2})
    with pytest.raises(KeyRefused, match="k1"):
        await opened(url, {"k1": K2})
    assert await store.read("s1") == [b'{"k":"SagaStarted","at":5}']
    await store.close()
    await blind.close()


async def test_an_entry_without_a_key_does_not_hold_up_others(url):
    """Of a group commit, entries that cannot be sealed fail by themselves."""
    both = await opened(url, {"k1": K1, "k2": K2})
    await both.open_lease("A", LONG_MS)
    await both.append("A", [begun("s1", b"r0")])
    old = await opened(url, {"k2": K2, "k1": K1})
    await old.append("A", [begun("s2", b"r0")])  # wrapped by k2
    one = await opened(url, KEYS)
    reply = await one.append("A", [Entry("s2", 1, 1, [b"r1"]), Entry("s1", 1, 1, [b"r1"])])
    assert [ack.code for ack in reply.acks] == ["late", "ok"]
    with pytest.raises(KeyMissing):
        await reply.late[0]
    assert await both.read("s2") == [b"r0"]
    for store in (both, old, one):
        await store.close()


async def test_a_keyring_is_read_again_for_an_unknown_key(url, monkeypatch):
    """A key that was added to the source after the start is found without a restart."""
    monkeypatch.setattr("saga_engine.privacy.keyring._AGAIN_S", 0.0)
    source = {"k1": K1}
    store = await opened(url, lambda: dict(source))
    newer = await opened(url, {"k2": K2, "k1": K1})
    await newer.open_lease("A", LONG_MS)
    await newer.append("A", [begun("s1", b"r0")])
    with pytest.raises(KeyMissing):
        await store.read("s1")
    source["k2"] = K2
    assert await store.read("s1") == [b"r0"]
    await store.close()
    await newer.close()


# --- what somebody does to the data ----------------------------------------------------------------------------------


async def test_changed_and_swapped_payloads_are_refused(url, shared_folder):
    """A flipped bit, a record of another place or saga, one in clear, another saga's key: each is a named error."""
    store = await opened(url, KEYS)
    await store.open_lease("A", LONG_MS)
    await store.append("A", [begun("s1", b'{"k":"a","at":1}', b'{"k":"a","at":2}'), begun("s2", b'{"k":"a","at":1}')])
    raw = shared_folder.raw()
    space = url.partition("namespace=")[2]
    keys = {key.rpartition(b"}:")[2]: key for key in raw.scan_iter(match=f"{space}:*")}
    one, two = keys[b"journal:s1"], keys[b"journal:s2"]
    whole = raw.lrange(one, 0, -1)

    async def refused() -> None:
        fresh = await opened(url, KEYS)
        with pytest.raises(SealBroken):
            await fresh.read("s1")
        await fresh.close()
        for at, record in enumerate(whole):
            raw.lset(one, at, record)

    for at in range(len(whole[0])):
        raw.lset(one, 0, whole[0][:at] + bytes([whole[0][at] ^ 1]) + whole[0][at + 1 :])
        if at % 16 == 0:
            await refused()
    raw.lset(one, 0, whole[0])
    for put in (whole[1], raw.lindex(two, 0), b'{"k":"a","at":1}'):
        raw.lset(one, 0, put)
        await refused()
    own, other = raw.hget(keys[b"head:s1"], "key"), raw.hget(keys[b"head:s2"], "key")
    for put in (other, b"", own[:-1] + bytes([own[-1] ^ 1])):
        raw.hset(keys[b"head:s1"], "key", put)
        await refused()
    raw.hset(keys[b"head:s1"], "key", own)
    await store.post("s1", b'{"id":"m1","kind":"cancel"}')
    sealed = raw.lindex(keys[b"journal:s1"].replace(b"journal", b"messages"), 0)
    raw.rpush(
        keys[b"journal:s1"].replace(b"journal", b"messages"),
        b'{"id":"m2","kind":"cancel"}',
        sealed.replace(b"m1", b"m3"),
    )
    assert [msgspec.json.decode(each) for each in await store.messages("s1")] == [
        {"id": "m1", "kind": "cancel"}, {"id": "m2"}, {"id": "m3"},
    ]  # fmt: skip
    await store.close()


# --- mixed stores, erasing, settings ---------------------------------------------------------------------------------


@tool(effect="read")
def ping(word: str) -> dict:
    return {"word": word}


def plan(word: str) -> dict:
    return {"goal": "g", "steps": [{"step_id": "a", "tool": "ping", "params": {"word": word}}]}


async def test_a_store_that_began_unsealed(url):
    """Sagas from before stay readable, with keys and without; new ones are sealed, and need keys."""
    async with Coordinator.open(url, [ping]) as clear:
        await clear.run(plan("old"), saga_id="old")
    async with Coordinator.open(url, [ping], privacy=KEYS) as keyed:
        await keyed.run(plan("new"), saga_id="new")
        assert (await keyed.show("old")).status == (await keyed.show("new")).status == "COMPLETED"
    async with Coordinator.open(url, [ping]) as blind:
        assert (await blind.show("old")).status == "COMPLETED"
        with pytest.raises(KeyMissing):
            await blind.show("new")
        with pytest.raises(KeyMissing):
            await blind.run(plan("x"), saga_id="third")


async def test_the_same_plan_is_known_again(url):
    """The identity of a plan depends on no nonce: the same id with the same plan is that saga, also elsewhere."""
    async with Coordinator.open(url, [ping], privacy=KEYS) as one, Coordinator.open(url, [ping], privacy=KEYS) as two:
        await one.run(plan("a"), saga_id="s")
        assert (await two.run(plan("a"), saga_id="s")).status == "COMPLETED"
        with pytest.raises(SagaExists):
            await two.run(plan("b"), saga_id="s")


async def test_erasing(url, shared_folder):
    """The key of an ended saga is destroyed, elsewhere too; its tombstone stays, also if an old key is put back."""
    async with Coordinator.open(url, [ping], privacy=KEYS) as one, Coordinator.open(url, [ping], privacy=KEYS) as two:
        await one.run(plan("secret"), saga_id="s")
        asked = {"goal": "g", "steps": [{"step_id": "a", "ask": {"question": "?", "options": ["yes"]}}]}
        assert (await one.run(asked, saga_id="live")).status == "ESCALATED"
        raw, space = shared_folder.raw(), url.partition("namespace=")[2]
        (head,) = [key for key in raw.scan_iter(match=f"{space}:*") if key.endswith(b"}:head:s")]
        old = raw.hget(head, "key")
        with pytest.raises(EraseRefused):
            await one.erase("live")
        for _ in range(2):
            await one.erase("s", by="ann", why="asked")
        assert raw.hget(head, "key") is None
        for engine in (one, two):
            with pytest.raises(SagaErased) as error:
                await engine.show("s")
            assert error.value.context["by"] == "ann"
            assert error.value.context["why"] == "asked"
        raw.hset(head, "key", old)
        with pytest.raises(SagaErased):
            await two.history("s")
        assert {each.saga_id for each in (await two.search()).sagas} == {"live"}
        assert "s" in {each.saga_id for each in await two.list()}
    async with Coordinator.open(url[:-1], [ping]) as clear:
        await clear.run(plan("old"), saga_id="old")
        with pytest.raises(EraseRefused):
            await clear.erase("old")


def test_settings_name_one_source(tmp_path, monkeypatch):
    """Keys come from the environment, from a file or from a function; bad ones are refused without repeating them."""
    monkeypatch.chdir(tmp_path)
    text = "k1:" + base64.b64encode(K1).decode()
    (tmp_path / "keys").write_text(f"# mine\n{text}\n")
    (tmp_path / "keys").chmod(0o600)
    (tmp_path / "saga.toml").write_text('[privacy]\nkeys_file = "keys"\n')
    assert keyring_of(load({}, environ={}), {}).current.secret == K1
    other = {"SAGA_PRIVACY_KEYS": "k2:" + base64.b64encode(K2).decode()}
    assert keyring_of(load({}, environ={}), other).current.name == "k2"
    (tmp_path / "keys").chmod(0o666)
    with pytest.raises(SettingInvalid, match="others may write"):
        keyring_of(load({}, environ={}), {})
    with pytest.raises(SettingInvalid) as error:
        parse_keys("k1:nothexbutsecret!", "there")
    assert "secret" not in str(error.value)
    (tmp_path / "saga.toml").write_text("[privacy]\nkeys = 1\n")
    with pytest.raises(SettingInvalid):
        keyring_of(load({}, environ={}), {})
