"""De-duplication: intent first, one result for identical calls, and nobody undoes what others rely on."""

import asyncio
import base64
import json
from urllib.parse import quote

import pytest

from saga_engine.core.effects import Done, NotDone, Unknown
from saga_engine.errors import OutcomeUnknown, StoreUnavailable, ToolError
from saga_engine.guards.dedupe import call_digest
from saga_engine.ports import Creation, Entry
from saga_engine.stores import open_store
from saga_engine.tools.decorator import tool
from tests.guards.world import Stage, Watched, guard, step, undoing

DAY_S = 86_400.0


class Desk:
    """A tool without keys that remembers, its undo and its probe; it fails in the way that it is told."""

    def __init__(self, *, probe=False):
        self.made, self.undone, self.probed = [], [], []
        self.how = "fine"
        self.happened = None

        @tool
        async def undo(n: int):
            self.undone.append(n)

        @tool(effect="read")
        async def ask(n: int):
            self.probed.append(n)
            return self.happened

        @tool(dedupe_ttl_s=DAY_S, undo=undo, probe=ask if probe else None)
        async def act(n: int, secret: str = ""):
            self.made.append(n)
            if self.how == "unknown":
                raise OutcomeUnknown("")
            if self.how == "retryable":
                raise ToolError("not now", retryable=True)
            if self.how == "no":
                raise ToolError("never")
            if self.how == "defect":
                raise RuntimeError
            return {"order": len(self.made), "echo": secret}

        self.tools = [act, undo, ask]


def code(outcome):
    assert isinstance(outcome, NotDone)
    return outcome.error.error_code, outcome.retryable, outcome.definite


def result(number):
    return {"order": number, "echo": ""}


async def test_an_identical_call_of_another_saga_gets_the_first_result_and_says_so(store):
    """Requirement A1: across sagas and processes one effect; the second outcome names its source and its age."""
    desk = Desk()
    here, there = guard(store, *desk.tools), guard(store, *desk.tools)
    assert await here.call("act", {"n": 1}, step("s1")) == Done(result(1))
    shared = await there.call("act", {"n": 1}, step("s2", 4))
    assert shared == Done(result(1), via="deduplicated", source="s1:1:f:seed", age_ms=shared.age_ms)
    assert shared.age_ms >= 0
    assert await there.call("act", {"n": 2}, step("s2", 5)) == Done(result(2))
    assert desk.made == [1, 2]
    assert (await there.stats())["act"]["deduplicated"] == 1
    await here.close()
    await there.close()


async def test_a_tool_without_the_option_makes_two_calls_of_two(store):
    """Pitfall 15: off by default, two identical legitimate calls are two calls."""
    made = []

    @tool
    async def act(n: int):
        made.append(n)

    tools = guard(store, act)
    for saga in ("s1", "s2"):
        assert await tools.call("act", {"n": 1}, step(saga)) == Done(None)
    assert made == [1, 1]
    await tools.close()


async def test_the_claim_is_written_before_the_call_and_the_result_before_anybody_hears(watched):
    """Law: intent first, as in the journal."""
    seen = []

    @tool(dedupe_ttl_s=DAY_S)
    async def act():
        seen.extend(watched.verbs())

    tools = guard(watched, act)
    await tools.call("act", {}, step())
    assert seen == ["claim"]
    assert watched.verbs() == ["claim", "remember"]
    await tools.close()


@pytest.mark.parametrize("happened", [True, False])
async def test_an_identical_call_that_ends_between_two_looks_is_not_in_doubt(store, happened):
    """Its saga ended after the claim was refused and before its owner was looked up: what it left in the store counts."""
    desk, first = Desk(), step("s1")
    identical = ("act", call_digest("act", {"n": 1}, first))
    day_ms = int(DAY_S * 1000)

    class Ends(Watched):
        """A store in which the other saga ends just when somebody asks whether it is driven."""

        async def saga_driven(self, _saga_id):
            if happened:
                await store.remember(*identical, first.idempotency_key, b'{"order": 7}', day_ms)
            else:
                await store.forget("act", first.idempotency_key)
            return False

    assert (await store.claim(*identical, first.idempotency_key, day_ms)).code == "new"
    tools = guard(Ends(store), *desk.tools)
    outcome = await tools.call("act", {"n": 1}, step("s2"))
    assert outcome.output == ({"order": 7} if happened else result(1))
    assert desk.made == ([] if happened else [1])
    await tools.close()


async def test_a_crash_between_leaves_a_claim_that_only_its_owner_may_settle(store):
    """Law: a call that was cut off is in doubt: others do not make it, its own saga goes on with it."""
    stage, made = Stage(), []

    @tool(dedupe_ttl_s=DAY_S)
    async def act(n: int):
        made.append(n)
        return await stage.enter(len(made))

    dead, alive = guard(store, act), guard(store, act)
    cut = asyncio.create_task(dead.call("act", {"n": 1}, step("s1")))
    await stage.until(1)
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)
    outcome = await alive.call("act", {"n": 1}, step("s2"))
    assert code(outcome) == ("duplicate_in_flight", True, False)
    assert "s1" in outcome.error.message
    again = asyncio.create_task(alive.call("act", {"n": 1}, step("s1", attempt=2)))
    await stage.until(2)
    stage.let_out(2)
    assert await again == Done(2)
    assert (await alive.call("act", {"n": 1}, step("s2", attempt=2))).via == "deduplicated"
    assert made == [1, 1]
    await dead.close()
    await alive.close()


async def test_a_result_that_never_reached_the_journal_is_found_again(store):
    """A crash between result and journal: the same step gets its own result, and no second effect."""
    desk = Desk()
    tools = guard(store, *desk.tools)
    await tools.call("act", {"n": 1}, step("s1"))
    assert await tools.call("act", {"n": 1}, step("s1", attempt=2)) == Done(result(1))
    assert await tools.probe("act", {"n": 1}, step("s1", direction="probe")) == Done(result(1))
    assert desk.made == [1]
    await tools.close()


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        # The first attempt is settled by its own word.
        (None, "no", False),
        (None, "retryable", False),
        (None, "defect", False),
        (None, "unknown", True),
        # The first attempt is in doubt: only a tool's own final word speaks of it, too.
        ("unknown", "no", False),
        ("unknown", "retryable", True),
        ("unknown", "defect", True),
        ("unknown", "unknown", True),
        # A settled first attempt leaves nothing in doubt.
        ("retryable", "retryable", False),
        ("retryable", "defect", False),
    ],
)
async def test_a_claim_is_dropped_only_when_nothing_is_in_doubt(store, first, second, kept):
    """Law: 'not done' frees the call for others unless an earlier attempt may have happened; unknown never does."""
    desk = Desk()
    tools = guard(store, *desk.tools)
    ways = [way for way in (first, second) if way is not None]
    for attempt, way in enumerate(ways, start=1):
        desk.how = way
        await tools.call("act", {"n": 1}, step("s1", attempt=attempt))
    desk.how = "fine"
    other = await tools.call("act", {"n": 1}, step("s2"))
    assert (isinstance(other, NotDone) and code(other)[0] == "duplicate_in_flight") is kept
    await tools.close()


async def test_what_a_later_guard_keeps_back_frees_the_claim(store):
    """Law: a call that was claimed and then not made, because its resource was taken, is free for others."""
    stage = Stage()

    @tool(dedupe_ttl_s=DAY_S, resource="one")
    async def act(n: int):
        return await stage.enter(n)

    tools = guard(store, act)
    first = asyncio.create_task(tools.call("act", {"n": 1}, step("s1")))
    await stage.until(1)
    late = await tools.call("act", {"n": 2}, step("s2", deadline_ms=1))
    assert code(late)[0] == "deadline"
    stage.let_out(1)
    await first
    other = asyncio.create_task(tools.call("act", {"n": 2}, step("s3")))
    await stage.until(2)
    stage.let_out(2)
    assert await other == Done(2)
    await tools.close()


async def test_a_failing_store_takes_no_result_away(watched, caplog):
    """Law: a call that happened is done, whether or not it could be remembered; without a claim nothing is called."""
    desk = Desk()
    tools = guard(watched, *desk.tools)
    watched.broken["remember"] = StoreUnavailable("away")
    assert await tools.call("act", {"n": 1}, step("s1")) == Done(result(1))
    assert "could not be remembered" in caplog.text
    assert code(await tools.call("act", {"n": 1}, step("s2")))[0] == "duplicate_in_flight"
    watched.broken = {"forget": StoreUnavailable("away")}
    desk.how = "no"
    assert code(await tools.call("act", {"n": 3}, step("s1")))[0] == "tool_error"
    watched.broken = {"claim": StoreUnavailable("away")}
    assert code(await tools.call("act", {"n": 4}, step("s1"))) == ("store_unavailable", True, False)
    assert desk.made == [1, 3]
    await tools.close()


async def test_secrets_are_neither_part_of_the_digest_nor_of_a_result(watched):
    """Law: identical calls are compared by the names of their secrets, and an echo is remembered as a marker."""
    desk = Desk()
    tools = guard(watched, *desk.tools)
    masked = {"n": 1, "secret": "Bearer $secret.TOKEN!"}
    first = await tools.call("act", {"n": 1, "secret": "Bearer hunter2!"}, step("s1", masked=masked))
    assert first == Done({"order": 1, "echo": "Bearer hunter2!"})
    (remembered,) = [args[3] for verb, args in watched.asked if verb == "remember"]
    assert json.loads(remembered) == {"order": 1, "echo": "Bearer $secret.TOKEN!"}
    rotated = await tools.call("act", {"n": 1, "secret": "Bearer other!"}, step("s2", masked=masked))
    assert rotated.via == "deduplicated"
    assert "hunter2" not in repr(watched.asked)
    await tools.close()


@pytest.mark.parametrize("how", ["base64", "URL", "number"])
async def test_an_echo_in_another_spelling_is_no_part_of_a_kept_result(watched, how):
    """A tool may answer with an encoded secret, or with the number that it is: what is kept holds its marker."""
    secret = "31415926" if how == "number" else "hunter2/hunter2"
    spelt = {
        "base64": base64.b64encode(secret.encode()).decode(),
        "URL": quote(secret, safe=""),
        "number": 31415926,
    }[how]

    @tool(dedupe_ttl_s=DAY_S)
    async def echo(pin: str):
        return {"said": spelt}

    tools = guard(watched, echo)
    await tools.call("echo", {"pin": secret}, step("s1", masked={"pin": "$secret.PIN"}))
    (kept,) = [args[3] for verb, args in watched.asked if verb == "remember"]
    assert "$secret.PIN" in kept.decode()
    assert str(spelt)[:16] not in kept.decode()
    await tools.close()


# --- probes ----------------------------------------------------------------------------------------------------------


async def test_a_probe_looks_for_a_deduplicated_result_first(store):
    """Law: what is remembered needs no probe; what is not is asked of the tool, and the answer is remembered."""
    desk = Desk(probe=True)
    tools = guard(store, *desk.tools)
    await tools.call("act", {"n": 1}, step("s1"))
    assert await tools.probe("act", {"n": 1}, step("s1", direction="probe")) == Done(result(1))
    assert not desk.probed
    desk.how = "unknown"
    await tools.call("act", {"n": 2}, step("s1", 2))
    desk.happened = {"order": 9}
    assert await tools.probe("act", {"n": 2}, step("s1", 2, direction="probe")) == Done({"order": 9})
    shared = await tools.call("act", {"n": 2}, step("s2"))
    assert (shared.output, shared.via) == ({"order": 9}, "deduplicated")
    await tools.close()


async def test_a_probe_that_denies_frees_the_call(store):
    """'It did not happen' drops the claim; without de-duplication and a probe nobody can tell."""
    desk = Desk(probe=True)
    tools = guard(store, *desk.tools)
    desk.how = "unknown"
    await tools.call("act", {"n": 1}, step("s1"))
    assert code(await tools.call("act", {"n": 1}, step("s2")))[0] == "duplicate_in_flight"
    assert isinstance(await tools.probe("act", {"n": 1}, step("s1", direction="probe")), NotDone)
    desk.how = "fine"
    assert await tools.call("act", {"n": 1}, step("s2")) == Done(result(2))
    mute = Desk()
    mute.how = "unknown"
    other = guard(store, *mute.tools)
    await other.call("act", {"n": 7}, step("s3"))
    assert isinstance(await other.probe("act", {"n": 7}, step("s3", direction="probe")), Unknown)
    await tools.close()
    await other.close()


async def test_a_probe_does_without_a_store_that_is_away(watched, caplog):
    """The tool's own probe is asked when the store cannot be."""
    desk = Desk(probe=True)
    desk.happened = 1
    tools = guard(watched, *desk.tools)
    watched.broken["recollect"] = StoreUnavailable("away")
    assert await tools.probe("act", {"n": 1}, step("s1", direction="probe")) == Done(1)
    assert "could not be looked up" in caplog.text
    await tools.close()


# --- undoing ---------------------------------------------------------------------------------------------------------


async def test_an_undo_forgets_first(watched):
    """Law: what is undone is forgotten before the undo is called, so nobody gets the result of what is no more."""
    desk = Desk()
    tools = guard(watched, *desk.tools)
    await tools.call("act", {"n": 1}, step("s1"))
    assert await tools.call("undo", {"n": 1}, undoing("s1")) == Done(None)
    assert watched.verbs() == ["claim", "remember", "forget"]
    assert await tools.call("undo", {"n": 1}, undoing("s1", attempt=2)) == Done(None)
    assert await tools.call("act", {"n": 1}, step("s2")) == Done(result(2))
    await tools.close()


@pytest.fixture
async def whole_store():
    """A store with sagas in it."""
    opened = open_store("memory://")
    await opened.open()
    yield opened
    await opened.close()


async def saga(store, saga_id, status):
    """A saga of this id in this status; somebody drives it while there is something to be done."""
    await store.open_lease("me", 600_000)
    over = status not in ("RUNNING", "COMPENSATING")
    entry = Entry(saga_id, 0, 0, [b"r"], status, b"{}", over, creation=Creation("d", owned=True))
    assert (await store.append("me", [entry])).acks[0].code == "ok"


@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "COMPENSATING", "ESCALATED"])
async def test_nobody_undoes_what_another_saga_relies_on(whole_store, status):
    """Law: a shared result is not undone under a saga that uses it: final 'no', a person decides, nothing is called."""
    desk = Desk()
    tools = guard(whole_store.guard_store(), *desk.tools)
    await saga(whole_store, "s2", status)
    await tools.call("act", {"n": 1}, step("s1"))
    await tools.call("act", {"n": 1}, step("s2"))
    outcome = await tools.call("undo", {"n": 1}, undoing("s1"))
    assert code(outcome) == ("result_shared", False, True)
    assert "s2" in outcome.error.message
    assert outcome.error.suggestion
    assert not desk.undone
    assert (await tools.call("act", {"n": 1}, step("s3"))).via == "deduplicated"
    await tools.close()


@pytest.mark.parametrize("status", ["COMPENSATED", "WAIVED", None])
async def test_sagas_that_are_over_or_gone_rely_on_nothing(whole_store, status):
    """Law: an undone, given up or purged saga does not stand in the way of an undo."""
    desk = Desk()
    watched = Watched(whole_store.guard_store())
    tools = guard(watched, *desk.tools)
    if status is not None:
        await saga(whole_store, "s2", status)
    await tools.call("act", {"n": 1}, step("s1"))
    await tools.call("act", {"n": 1}, step("s2"))
    assert await tools.call("undo", {"n": 1}, undoing("s1")) == Done(None)
    assert desk.undone == [1]
    assert await tools.call("act", {"n": 1}, step("s3")) == Done(result(2))
    await tools.close()


@pytest.mark.parametrize("how", ["unknown", "fine"])
@pytest.mark.parametrize(
    ("status", "served"),
    [("COMPENSATED", True), ("ESCALATED", False), ("COMPLETED", False), ("WAIVED", False), (None, False)],
)
async def test_what_an_undone_saga_claimed_stands_in_nobodys_way(whole_store, status, served, how):
    """Law: a person said that its call did not happen, or undid it by hand, so the next identical call is made.

    Any other saga may have left its effect in the world.
    """
    desk = Desk()
    desk.how = how
    tools = guard(whole_store.guard_store(), desk.tools)
    await tools.call("act", {"n": 1}, step("s1"))
    desk.how = "fine"
    if status is not None:
        await saga(whole_store, "s1", status)
    outcome = await tools.call("act", {"n": 1}, step("s2"))
    assert desk.made == [1] * (2 if served else 1)
    if served:
        assert outcome == Done(result(2))
        assert (await tools.call("act", {"n": 1}, step("s3"))).source == step("s2").idempotency_key
    elif how == "unknown":
        assert code(outcome)[0] == "duplicate_in_flight"
    else:
        assert outcome.via == "deduplicated"
    await tools.close()


async def test_two_identical_steps_of_one_saga_are_two_calls_and_do_not_rely_on_each_other(whole_store):
    """What one plan says twice is meant twice, and neither step keeps the other from being undone."""
    desk = Desk()
    tools = guard(whole_store.guard_store(), *desk.tools)
    await saga(whole_store, "s1", "COMPENSATING")
    await tools.call("act", {"n": 1}, step("s1", 1))
    assert await tools.call("act", {"n": 1}, step("s1", 2)) == Done(result(2))
    assert await tools.call("undo", {"n": 1}, undoing("s1", 1)) == Done(None)
    await tools.close()


async def test_an_undo_waits_for_a_store_that_is_away(watched):
    """Whether others rely on it is not known: not done, to be tried again, nothing called."""
    desk = Desk()
    tools = guard(watched, *desk.tools)
    watched.broken["forget"] = StoreUnavailable("away")
    assert code(await tools.call("undo", {"n": 1}, undoing("s1"))) == ("store_unavailable", True, False)
    assert not desk.undone
    await tools.close()
