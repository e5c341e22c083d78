"""Mail in every order of events: no message waits unseen, whatever happens to the owners of its saga."""

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from saga_engine.core.states import SAGA_FINAL
from saga_engine.ports import Acquired, Creation, Entry
from saga_engine.stores import open_store
from tests import tiers

LONG_MS = 600_000
OWNERS = ("A", "B", "C")

owners = st.sampled_from(OWNERS)
events = st.one_of(
    st.tuples(st.just("post"), st.integers(0, 3)),
    st.tuples(
        st.just("append"),
        st.sampled_from(["", "", *OWNERS]),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from(["", "RUNNING", "WAIVED"]),
    ),
    st.tuples(st.just("acquire"), owners, st.sampled_from(["", *OWNERS])),
    st.tuples(st.just("release"), st.sampled_from([0, 1])),
    st.tuples(st.just("take"), owners),
    st.tuples(st.just("close"), owners),
    st.tuples(st.just("reclaim"), owners, st.booleans()),
)


class World:
    """One saga, three owners, and what lies in the server."""

    def __init__(self):
        self.store = open_store("memory://")

    def key(self, rest):
        """A key of the saga's partition."""
        return self.store._key("", "s").removesuffix(":s") + rest

    async def begin(self):
        await self.store.open()
        for owner in OWNERS:
            await self.store.open_lease(owner, LONG_MS)
        await self.store.append("A", [Entry("s", 0, 0, [b"r"], "RUNNING", creation=Creation("d", owned=True))])

    async def happens(self, event):
        kind, *args = event
        store, work = self.store, self.store.work()
        head = await store.head("s")
        if kind == "post":
            await store.post("s", b"m%d" % args[0])
            if head.owner:
                assert await store._plain("SISMEMBER", self.key(f"wake:{head.owner}"), "s") == 1
        elif kind == "append":
            owner, consumed, release, status = args
            entry = Entry(
                "s", head.length, head.epoch, [b"r"], status or None, None, release, min(consumed, head.messages)
            )
            (ack,) = (await store.append(owner or head.owner or "A", [entry])).acks
            after = await store.head("s")
            assert ack.messages == after.messages
            assert ack.code == "fenced" or ack.released == (after.owner == "")
        elif kind == "acquire":
            reply = await store.acquire("s", *args) if (await self.lives(args[0])) else None
            assert not isinstance(reply, Acquired) or len(reply.messages) == head.messages
        elif kind == "release":
            await store.release("s", head.epoch, args[0])
        elif kind == "take":
            for taken in (await work.take(args[0], f"n{head.epoch}", 9, range(work.count))).sagas:
                assert taken.messages == head.messages
        elif kind == "close":
            await store.close_lease(args[0])
        else:
            await work.reclaim(args[0], range(work.count), dead=args[1])

    async def lives(self, owner):
        return bool((await self.store.work().owners(range(16))).get(owner))

    async def holds(self):
        """What is true at any time."""
        store = self.store
        head = await store.head("s")
        if head.messages:
            assert await store._plain("HGET", self.key("head:s"), "messages") == b"1"
        due = await store._plain("ZSCORE", self.key("due"), "s")
        if head.messages and not head.owner and head.status not in SAGA_FINAL:
            assert due is not None
        assert due is None or not head.owner_ttl_ms


@settings(max_examples=tiers.examples(80), deadline=None)
@given(st.lists(events, max_size=25))
@example([("post", 0), ("post", 1), ("append", "", 1, True, ""), ("append", "", 1, True, "")])
def test_no_message_waits_unseen(story):
    """The head says that there are messages whenever there are; a saga that nobody owns and that has messages stands in the queue.

    An append looks for messages only if the head says so: messages without the flag would be given up unread.
    """

    async def play():
        world = World()
        await world.begin()
        for event in story:
            await world.happens(event)
            await world.holds()
        await world.store.close()

    asyncio.run(play())
