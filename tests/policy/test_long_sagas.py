"""What a saga has used of a limit is known for as long as the saga lives."""

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import CallBlocked
from saga_engine.policy.rules import Policy, Rule
from tests.support.servers import DebianRedis, key_of

pytestmark = pytest.mark.debian_redis


@tool(undo="refund", keyed=True)
async def pay(amount: int) -> dict:
    return {"amount": amount}


@tool
async def refund(amount: int) -> dict:
    return {}


ONCE = Policy([Rule(name="once", tools=["pay"], verdict="deny", max_calls=1, direction="forward")])


def months_go_by(raw):
    """All that expires has expired, but for the leases that live processes renew."""
    for key in raw.keys("*"):
        if raw.pttl(key) > 0 and b":lease:" not in key:
            raw.delete(key)


async def test_the_counts_of_a_live_saga_do_not_expire():
    """A limit holds months later, in the same saga; what was counted goes with the saga when it has ended."""
    with DebianRedis() as server, server.client() as raw:
        async with Coordinator.open(server.url, [pay, refund], policy=ONCE) as engine:
            async with engine.session("s1") as trip:
                await trip.call("pay", amount=1)
                months_go_by(raw)
                with pytest.raises(CallBlocked):
                    await trip.call("pay", amount=2)
            ttl_ms = raw.pttl(key_of(raw, "head", "s1"))
            assert ttl_ms > 0
            assert ttl_ms - 60_000 < raw.pttl(key_of(raw, "tally", "s1")) <= ttl_ms + 60_000
            months_go_by(raw)
            # The indexes, and the terms by which one of them is cleaned, outlive the saga until the next append cleans them.
            indexes = (b":index:", b":terms:", b":expiry")
            assert not [key for key in raw.keys("*") if b"s1" in key and not any(name in key for name in indexes)]
