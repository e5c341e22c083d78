"""The shared state of guards on every kind of server, against models, over broken lines, and as keys."""

import asyncio
import uuid
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga_engine.errors import StoreRefused
from saga_engine.ports import BreakerState, Claim
from saga_engine.stores import open_store
from saga_engine.testing.guard_conformance import EVERY_BYTE, HOUR_US, LONG_MS, SHORT_MS, GuardConformance, until
from saga_engine.testing.proxy import CuttingProxy
from tests import tiers
from tests.stores.permissions import documented_rules
from tests.support.servers import DebianRedis, EmbeddedFolder

DAY_MS = 86_400_000


async def opened(url, **options):
    store = open_store(url, **options)
    await store.open()
    return store


class TestMemory(GuardConformance):
    @pytest.fixture
    async def store(self):
        store = await opened("memory://")
        yield store
        await store.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One folder for all: the server stops with the last client of each test and comes back with its data."""
    with EmbeddedFolder(tmp_path_factory.mktemp("embedded") / "saga") as folder:
        yield folder


class TestEmbedded(GuardConformance):
    @pytest.fixture
    async def store(self, shared):
        store = await opened(f"{shared.url}?namespace={uuid.uuid4().hex}")
        yield store
        await store.close()


@pytest.mark.debian_redis
class TestDebianRedis(GuardConformance):
    @pytest.fixture
    async def store(self, debian_redis):
        store = await opened(f"{debian_redis.url}?namespace={uuid.uuid4().hex}")
        yield store
        await store.close()


# --- against models: times are 0 (over at once) or an hour (not over within a test), so no clock is needed ---


def play(game):
    """Run one example on a server of its own."""

    async def with_guards():
        store = await opened("memory://")
        try:
            await game(store.guard_store())
        finally:
            await store.close()

    asyncio.run(with_guards())


class ModelBreaker:
    """The table of guard_breaker.lua, written down a second time."""

    def __init__(self):
        self.failures = 0
        self.state = "closed"

    def outcome(self, failed, limit, open_ms):
        if not failed:
            self.failures, self.state = 0, "closed"
        elif self.state == "closed":
            self.failures += 1
            if self.failures >= limit:
                self.state = "open" if open_ms else "waiting"
        elif self.state in ("on trial", "lapsed"):
            self.failures += 1
            self.state = "open" if open_ms else "waiting"

    def trial(self, trial_ms):
        if self.state in ("waiting", "lapsed"):
            self.state = "on trial" if trial_ms else "lapsed"
            return True
        return self.state == "closed"


OVER_OR_NEVER = st.sampled_from([0, LONG_MS])
OUTCOMES = st.tuples(st.just("outcome"), st.booleans(), st.integers(1, 4), OVER_OR_NEVER)
TRIALS = st.tuples(st.just("trial"), OVER_OR_NEVER)
TOOLS = st.sampled_from(["pay", "pay.2"])


@settings(deadline=None, max_examples=tiers.examples(150))
@given(st.lists(st.tuples(TOOLS, OUTCOMES | TRIALS), max_size=40))
def test_breakers_are_like_their_model(steps):
    """Whatever happens in whatever order, the state is the table's, and no tool knows of another's."""

    async def game(guards):
        models = {"pay": ModelBreaker(), "pay.2": ModelBreaker()}
        for tool, (verb, *args) in steps:
            model = models[tool]
            if verb == "trial":
                assert await guards.breaker_trial(tool, args[0]) == model.trial(args[0])
            else:
                failed, failures, open_ms = args
                model.outcome(failed, failures, open_ms)
                said = await guards.breaker_outcome(tool, failed=failed, failures=failures, open_ms=open_ms)
                assert said[:2] == (model.failures, model.state != "closed")
                assert (said.opens_ms > 0) == (model.state == "open")
        for tool, found in (await guards.breakers(list(models))).items():
            assert found[:2] == (models[tool].failures, models[tool].state != "closed")
            assert (found.opens_ms > 0) == (models[tool].state == "open")

    play(game)


TICKETS = st.sampled_from("abcde")


@settings(deadline=None, max_examples=tiers.examples(150))
@given(
    st.lists(
        st.tuples(st.just("take"), st.lists(TICKETS, max_size=4), OVER_OR_NEVER) | st.tuples(st.just("give"), TICKETS),
        max_size=40,
    )
)
def test_queues_are_like_their_model(steps):
    """The turn is the first's among those alive; the dead join anew; nobody is passed over."""

    async def game(guards):
        queue = []
        for verb, *args in steps:
            if verb == "take":
                tickets, ttl_ms = args
                for ticket in tickets:
                    if ttl_ms and ticket not in queue:
                        queue.append(ticket)
                    if not ttl_ms and ticket in queue:
                        queue.remove(ticket)
                turn = await guards.take("r", tickets, ttl_ms)
            else:
                turn = await guards.give("r", args[0])
                queue = [ticket for ticket in queue if ticket != args[0]]
            assert turn == (queue[0] if queue else "")
        for ticket in list(queue):
            queue.remove(ticket)
            assert await guards.give("r", ticket) == (queue[0] if queue else "")

    play(game)


class ModelResults:
    """What one tool remembers, without time."""

    def __init__(self):
        self.entries = {}  # digest -> [owner, result]
        self.claimed = {}  # owner -> digests
        self.relying = {}  # owner -> owners

    def claim(self, digest, owner):
        holder, result = self.entries.setdefault(digest, [None, None])
        if holder is None:
            self.entries[digest] = [owner, None]
            self.claimed.setdefault(owner, set()).add(digest)
            return ("new", "", b"")
        if result is None:
            return ("ours", "", b"") if holder == owner else ("busy", holder, b"")
        if holder != owner:
            self.relying.setdefault(holder, set()).add(owner)
        return ("done", holder, result)

    def remember(self, digest, owner, result):
        if self.entries.get(digest, [None])[0] == owner and digest in self.claimed.get(owner, ()):
            self.entries[digest][1] = result

    def forget(self, owner):
        if self.relying.get(owner):
            return sorted(self.relying[owner])
        for digest in self.claimed.pop(owner, ()):
            if self.entries[digest][0] == owner:
                del self.entries[digest]
        return []

    def recollect(self, owner):
        return {result for holder, result in self.entries.values() if holder == owner and result is not None} or {None}


OWNERS = st.sampled_from(["A", "B", "C"])
DIGESTS = st.sampled_from(["d1", "d2"])


@settings(deadline=None, max_examples=tiers.examples(150))
@given(
    st.lists(
        st.tuples(st.just("claim"), DIGESTS, OWNERS)
        | st.tuples(st.just("remember"), DIGESTS, OWNERS, st.binary(max_size=3))
        | st.tuples(st.just("forget"), OWNERS)
        | st.tuples(st.just("unrely"), OWNERS, OWNERS),
        max_size=40,
    )
)
def test_kept_results_are_like_their_model(steps):
    """One maker for each call, a result for all who ask, and none dropped that somebody relies on."""

    async def game(guards):
        model = ModelResults()
        for verb, *args in steps:
            if verb == "claim":
                digest, owner = args
                expected = model.claim(digest, owner)
                assert (await guards.claim("pay", digest, owner, LONG_MS))[:3] == expected
            elif verb == "remember":
                digest, owner, result = args
                model.remember(digest, owner, result)
                await guards.remember("pay", digest, owner, result, LONG_MS)
            elif verb == "forget":
                expected = model.forget(args[0])
                assert list(await guards.forget("pay", args[0])) == expected
            else:
                model.relying.get(args[0], set()).discard(args[1])
                await guards.unrely("pay", args[0], args[1])
            for owner in "ABC":
                assert await guards.recollect("pay", owner) in model.recollect(owner)

    play(game)


@settings(deadline=None, max_examples=tiers.examples(100))
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(0, 6)), min_size=1, max_size=20),
)
def test_reservations_never_exceed_the_limit(burst, asks):
    """Whatever is asked, granted moments keep the limit: the n-th is no earlier than (n - burst) intervals on.

    Intervals are hours, so the seconds that a test takes only ever make a wait shorter than the model's.
    """
    slack_ms = 300_000

    async def game(guards):
        granted = 0
        for repeat, hours in asks:
            for _ in range(repeat):
                due_ms = max(granted + 1 - burst, 0) * LONG_MS
                limit_ms = None if hours is None else hours * LONG_MS
                wait_ms = await guards.reserve("x", HOUR_US, burst, limit_ms)
                if limit_ms is not None and due_ms - slack_ms > limit_ms:
                    assert wait_ms == -1
                else:
                    assert max(due_ms - slack_ms, 0) <= wait_ms <= due_ms
                    granted += 1

    play(game)


# --- over broken lines ---


@pytest.fixture
async def proxy(debian_redis):
    async with CuttingProxy(debian_redis.url) as proxy:
        yield proxy


@pytest.fixture
async def guards(proxy):
    """Guards behind the proxy, on a server that knows the scripts: a cut answer is the answer of one that ran."""
    store = await opened(f"{proxy.url}?namespace={uuid.uuid4().hex}", patience_s=20)
    guards = store.guard_store()
    await guards.claim("warm", "d", "A", LONG_MS)
    await guards.take("warm", ["a"], LONG_MS)
    await guards.breakers(["warm"])
    await guards.reserve("warm", 1, 1, None)
    yield guards
    proxy.restore()
    await store.close()


BOTH = pytest.mark.parametrize("when", ["before", "after"])
pytest_redis = pytest.mark.debian_redis


@pytest_redis
@BOTH
async def test_a_lost_claim_is_still_new(guards, proxy, when):
    """Who claimed a call and lost the answer is told that it is new: nobody has called in between."""
    proxy.cut(when, times=2)
    assert await guards.claim("pay", "d", "A", LONG_MS) == Claim("new")
    assert proxy.made == 2
    assert await guards.claim("pay", "d", "A", LONG_MS) == Claim("ours")
    assert await guards.claim("pay", "d", "B", LONG_MS) == Claim("busy", "A")


@pytest_redis
@BOTH
async def test_lost_results_and_reliances_are_written_once(guards, proxy, when):
    """Remembering, sharing and forgetting come to the same however often the line broke."""
    await guards.claim("pay", "d", "A", LONG_MS)
    proxy.cut(when)
    await guards.remember("pay", "d", "A", EVERY_BYTE, LONG_MS)
    proxy.cut(when)
    assert (await guards.claim("pay", "d", "B", LONG_MS))[:3] == ("done", "A", EVERY_BYTE)
    proxy.cut(when)
    assert list(await guards.forget("pay", "A")) == ["B"]
    proxy.cut(when)
    await guards.unrely("pay", "A", "B")
    proxy.cut(when)
    assert list(await guards.forget("pay", "A")) == []
    assert proxy.made == 5
    assert await guards.recollect("pay", "A") is None


@pytest_redis
@BOTH
async def test_a_lost_place_is_the_same_place(guards, proxy, when):
    """Taking and giving are repeated without harm to anybody's turn."""
    await guards.take("r", ["a"], LONG_MS)
    proxy.cut(when)
    assert await guards.take("r", ["b", "c"], LONG_MS) == "a"
    proxy.cut(when)
    assert await guards.give("r", "a") == "b"
    assert proxy.made == 2
    assert await guards.give("r", "b") == "c"


@pytest_redis
@BOTH
async def test_a_lost_failure_counts_once(guards, proxy, when):
    """One failed call is one failure, whatever the line does; so is the one that opens it, and that of a trial."""
    for number in (1, 2, 3):
        proxy.cut(when, times=2)
        state = await guards.breaker_outcome("pay", failed=True, failures=3, open_ms=0)
        assert state == BreakerState(number, tripped=number == 3)
    proxy.cut(when, times=2)
    assert await guards.breaker_trial("pay", LONG_MS) is True
    assert await guards.breaker_trial("pay", LONG_MS) is False
    proxy.cut(when, times=2)
    assert await guards.breaker_outcome("pay", failed=True, failures=3, open_ms=0) == BreakerState(4, tripped=True)
    assert proxy.made == 10


async def test_a_repeat_that_comes_late():
    """A repeat recognises its own work only where nothing happened in between that it could not know of."""
    store = await opened("memory://")
    keys = ["saga:{t:pay}:owner:A", "saga:{t:pay}:dedupe:d"]
    claim = ["claim", "A", "d", LONG_MS, "first"]
    assert await store._run("guard_dedupe", keys, claim) == [b"new"]
    # Another process took the saga over, and may have made the call.
    assert await store.guard_store().claim("pay", "d", "A", LONG_MS) == Claim("ours")
    assert await store._run("guard_dedupe", keys, claim) == [b"ours"]
    breaker = ["saga:{t:pay}:breaker"]
    opening = ["outcome", 1, 1, 0, "first"]
    assert await store._run("guard_breaker", breaker, opening) == [1, 1, 0]
    # The failure that opened it is not that of the trial that is on by now.
    assert await store.guard_store().breaker_trial("pay", LONG_MS) is True
    assert await store._run("guard_breaker", breaker, opening) == [1, 1, 0]
    await store.close()


@pytest_redis
async def test_a_lost_reservation_wastes_a_moment(guards, proxy):
    """The limit is kept: the repeat reserves the moment after the one whose answer was lost."""
    proxy.cut("after")
    assert 0 < await guards.reserve("x", HOUR_US, 1, None) <= LONG_MS
    assert proxy.made == 1


# --- as keys ---


@pytest.fixture
def namespace():
    return uuid.uuid4().hex


@pytest.fixture
async def store(debian_redis, namespace):
    store = await opened(f"{debian_redis.url}?namespace={namespace}")
    yield store
    await store.close()


@pytest.fixture
def raw(debian_redis, namespace):
    with debian_redis.client(decode_responses=True) as client:
        yield client


def found(raw, namespace):
    """The keys of a namespace without its name, but for the store's meta."""
    return sorted(key.removeprefix(f"{namespace}:") for key in raw.keys(f"{namespace}:*") if not key.endswith(":meta"))


@pytest_redis
async def test_a_dead_queue_leaves_nothing(store, raw, namespace):
    """When everybody has gone, in order or not, no key is left."""
    guards = store.guard_store()
    await guards.take("r", ["a", "b"], LONG_MS)
    assert len(found(raw, namespace)) == 2
    await guards.give("r", "a")
    await guards.give("r", "b")
    assert found(raw, namespace) == []
    await guards.take("r", ["dead"], SHORT_MS)
    assert all(
        0 <= raw.pttl(f"{namespace}:{key}") <= SHORT_MS or raw.pttl(f"{namespace}:{key}") == -2
        for key in found(raw, namespace)
    )

    async def gone():
        return found(raw, namespace) == []

    await until(gone, "the keys to expire")


@pytest_redis
async def test_a_queue_lives_as_long_as_its_longest_ticket(store, raw, namespace):
    """A short ticket that comes later does not take the others' keys with it."""
    guards = store.guard_store()
    await guards.take("r", ["a"], LONG_MS)
    await guards.take("r", ["b"], SHORT_MS)
    assert all(raw.pttl(f"{namespace}:{key}") > LONG_MS / 2 for key in found(raw, namespace))


@pytest_redis
async def test_a_ticket_without_a_life_blocks_nobody(store, raw, namespace):
    """Should half of the queue's keys be lost, the queue goes on: who is not known to be alive is dropped."""
    guards = store.guard_store()
    await guards.take("r", ["a", "b"], LONG_MS)
    (alive,) = [key for key in found(raw, namespace) if key.endswith(":alive")]
    raw.delete(f"{namespace}:{alive}")
    assert await guards.take("r", ["b"], LONG_MS) == "b"


@pytest_redis
async def test_the_dead_are_cleared_away(store, raw, namespace):
    """Tickets that died behind a live one do not pile up: each call takes some of them away."""
    guards = store.guard_store()
    await guards.take("r", ["holder"], LONG_MS)
    await guards.take("r", [f"dead{number}" for number in range(200)], 0)
    for _ in range(4):
        assert await guards.take("r", ["holder"], LONG_MS) == "holder"
    assert [raw.zcard(f"{namespace}:{key}") for key in found(raw, namespace)] == [1, 1]


@pytest_redis
async def test_a_rate_is_kept_to_the_microsecond(store, raw, namespace):
    """No rounding adds up, however small the interval is."""
    guards = store.guard_store()
    await guards.reserve("x", HOUR_US, 1, None)
    (key,) = found(raw, namespace)
    first_us = int(raw.get(f"{namespace}:{key}").split()[0])
    for _ in range(5):
        await guards.reserve("x", 7, 1, None)
    assert int(raw.get(f"{namespace}:{key}").split()[0]) == first_us + 35


@pytest_redis
async def test_an_unused_rate_leaves_nothing(store, raw, namespace):
    """A limit that is as good as new has no key."""
    await store.guard_store().reserve("x", 1000 * SHORT_MS, 1, None)

    async def gone():
        return found(raw, namespace) == []

    await until(gone, "the key to expire")


@pytest_redis
async def test_records_outlive_what_they_speak_of(store, raw, namespace):
    """Who relies on whom is known for 30 days after the result is gone, and touching it makes no life shorter."""
    guards = store.guard_store()
    year_ms = 365 * DAY_MS
    record = f"{namespace}:{{t:pay}}:owner:A"
    await guards.claim("pay", "d", "A", LONG_MS)
    assert 30 * DAY_MS < raw.pttl(record) <= 30 * DAY_MS + LONG_MS
    await guards.remember("pay", "d", "A", b"1", year_ms)
    assert raw.pttl(record) > year_ms + 29 * DAY_MS
    await guards.claim("pay", "d", "B", LONG_MS)
    await guards.claim("pay", "d2", "A", LONG_MS)
    assert raw.pttl(record) > year_ms + 29 * DAY_MS
    assert raw.pttl(f"{namespace}:{{t:pay}}:dedupe:d") > year_ms - DAY_MS
    assert raw.hkeys(record) == ["m:d", "by:B", "m:d2"]


@pytest_redis
async def test_times_beyond_all_reason(store):
    """A lifetime of a million years is kept as long as a server can, and none at all is kept for a moment."""
    guards = store.guard_store()
    for ttl_ms in (0, -5, 10**17):
        await guards.claim("pay", f"d{ttl_ms}", "A", ttl_ms)
        await guards.remember("pay", f"d{ttl_ms}", "A", b"1", ttl_ms)
        await guards.keep_good("find", "d", b"1", ttl_ms)
        await guards.tally_set("t", "A", "1", ttl_ms)
        await guards.take("r", ["a"], ttl_ms)
    assert await guards.take("r", ["b"], LONG_MS) == "a"
    await guards.breaker_outcome("pay", failed=True, failures=1, open_ms=10**17)
    assert await guards.breaker_trial("pay", 10**17) is False


@pytest_redis
async def test_a_long_queue_costs_little_more_than_a_short_one(store, raw):
    """What a call does to the keys does not grow with the queue: counted in commands, not in time."""
    guards = store.guard_store()

    async def commands(ticket):
        before = Counter({name: stat["calls"] for name, stat in raw.info("commandstats").items()})
        await guards.take("r", [ticket], LONG_MS)
        after = Counter({name: stat["calls"] for name, stat in raw.info("commandstats").items()})
        return sum((after - before).values())

    await guards.take("r", ["first"], LONG_MS)
    short = await commands("second")
    for start in range(0, 20_000, 1000):
        await guards.take("r", [f"t{number}" for number in range(start, start + 1000)], LONG_MS)
    assert await commands("last") == short


@pytest_redis
async def test_the_documented_user_can_use_the_guards():
    """The permissions of docs/stores.md are enough for every verb."""
    with DebianRedis(tcp=True) as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "engine", "on", ">geheim", "~saga:*", *documented_rules().split())
        store = await opened(f"redis://engine:geheim@127.0.0.1:{server.port}")
        guards = store.guard_store()
        await guards.claim("pay", "d", "A", LONG_MS)
        await guards.remember("pay", "d", "A", b"1", LONG_MS)
        await guards.claim("pay", "d", "B", LONG_MS)
        await guards.recollect("pay", "A")
        await guards.unrely("pay", "A", "B")
        await guards.forget("pay", "A")
        await guards.saga_status("s1")
        await guards.take("r", ["dead"], 0)
        await guards.take("r", ["a"], LONG_MS)
        await guards.give("r", "a")
        await guards.reserve("x", HOUR_US, 1, None)
        await guards.breaker_outcome("pay", failed=True, failures=1, open_ms=0)
        await guards.breaker_trial("pay", LONG_MS)
        await guards.breaker_outcome("pay", failed=False, failures=1, open_ms=0)
        await guards.count("pay", {"calls": 1})
        await guards.counters(["pay"])
        await guards.tally_set("t", "A", "1", LONG_MS)
        await guards.tally_set("t", "A", None, LONG_MS)
        await guards.tally("t")
        await guards.keep_good("find", "d", b"1", LONG_MS)
        assert (await guards.good("find", "d"))[0] == b"1"
        await store.close()


@pytest_redis
async def test_a_key_of_somebody_else_is_a_refusal(store, raw, namespace):
    """Another program's key of the same name is an error with a hint, not a lost guard."""
    raw.set(f"{namespace}:{{t:pay}}:breaker", "no hash")
    with pytest.raises(StoreRefused, match="WRONGTYPE") as caught:
        await store.guard_store().breakers(["pay"])
    assert caught.value.hint


@pytest_redis
async def test_what_was_claimed_survives_the_server():
    """A power cut right after a claim or a result: both are there when the server is back."""
    with DebianRedis() as server:
        store = await opened(server.url)
        guards = store.guard_store()
        await guards.claim("pay", "claimed", "A", LONG_MS)
        await guards.claim("pay", "made", "B", LONG_MS)
        await guards.remember("pay", "made", "B", b"1", LONG_MS)
        await guards.take("r", ["a", "b"], LONG_MS)
        server.kill()
        server.start()
        assert await guards.claim("pay", "claimed", "C", LONG_MS) == Claim("busy", "A")
        assert (await guards.claim("pay", "made", "C", LONG_MS))[:3] == ("done", "B", b"1")
        assert list(await guards.forget("pay", "B")) == ["C"]
        assert await guards.take("r", ["b"], LONG_MS) == "a"
        await store.close()


def test_every_script_is_used():
    """No script lies about that nothing runs."""
    stores = Path(__file__).parents[2] / "saga_engine" / "stores"
    source = (stores / "guards.py").read_text()
    for file in (stores / "lua").glob("guard_*.lua"):
        assert f'"{file.stem}"' in source
