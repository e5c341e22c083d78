"""The laws of every store's large values (``ValueStore``), as tests. A part of ``StoreConformance``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga_engine.ports import Store

LONG_MS = 3_600_000
SHORT_MS = 30
EVERY_BYTE = bytes(range(256))


class ValueConformance:
    """Bytes by the digest of their content."""

    async def test_a_value_comes_back_whole(self, store: Store) -> None:
        """Byte for byte, ten megabytes as well as none; an unknown digest has no value."""
        values = store.value_store()
        assert await values.get("ab" * 32) is None
        for digest, data in (("ab" * 32, EVERY_BYTE * 40_000), ("ac" * 32, b""), ("cd" * 32, EVERY_BYTE)):
            await values.put(digest, data, LONG_MS)
            assert await values.get(digest) == data
        assert await values.get("ef" * 32) is None

    async def test_a_value_that_is_stored_again(self, store: Store) -> None:
        """Storing a value twice changes nothing, but its time starts anew: a later saga relies on it, too."""
        values = store.value_store()
        await values.put("ab" * 32, b"v", SHORT_MS)
        await values.put("ab" * 32, b"v", LONG_MS)
        await values.put("ff" * 32, b"w", SHORT_MS)
        async with asyncio.timeout(30):
            while await values.get("ff" * 32) is not None:  # noqa: ASYNC110 -- it is the server's clock that decides
                await asyncio.sleep(0.005)
        assert await values.get("ab" * 32) == b"v"

    async def test_values_are_no_results_of_a_tool(self, store: Store) -> None:
        """The de-duplication of tools and the values are separate, whatever a tool is called."""
        values, guards = store.value_store(), store.guard_store()
        await values.put("ab" * 32, b"v", LONG_MS)
        for tool in ("ab", "temporal values/ab", "v:ab"):
            assert await guards.good(tool, "ab" * 32) is None
            await guards.keep_good(tool, "ab" * 32, b"other", LONG_MS)
        assert await values.get("ab" * 32) == b"v"
