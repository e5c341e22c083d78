"""The laws of every store's named documents (``DocumentStore``), as tests. A part of ``StoreConformance``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from saga_engine.ports import Document

if TYPE_CHECKING:
    from saga_engine.ports import Store


class DocumentConformance:
    """Documents by kind and name, fenced by their revisions."""

    async def test_one_of_two_writers_writes(self, store: Store) -> None:
        """Of those who have read the same revision; and the loser has changed nothing."""
        documents = store.documents()
        assert await documents.read("schedule", "a") is None
        made = await documents.write("schedule", Document("a", 0, b"1"))
        assert made is not None
        assert await documents.write("schedule", Document("a", 0, b"other")) is None
        written = await asyncio.gather(*(documents.write("schedule", made._replace(body=b"%d" % n)) for n in range(8)))
        (winner,) = [each for each in written if each is not None]
        assert await documents.read("schedule", "a") == winner
        assert winner.revision > made.revision
        assert not await documents.remove("schedule", "a", made.revision)
        assert await documents.remove("schedule", "a", winner.revision)
        assert await documents.read("schedule", "a") is None

    async def test_a_write_that_is_repeated_succeeds_again(self, store: Store) -> None:
        """Its response may have been lost."""
        documents = store.documents()
        first = Document("a", 0, b"1")
        made = await documents.write("template", first)
        assert made is not None
        assert await documents.write("template", first) == made
        assert await documents.write("template", made) == await documents.write("template", made)
        assert await documents.remove("template", "a", 7) is False
        found = await documents.read("template", "a")
        assert found is not None
        assert await documents.remove("template", "a", found.revision)
        assert await documents.remove("template", "a", found.revision)

    async def test_a_removed_document_has_no_writers_left(self, store: Store) -> None:
        """Who read it before it was removed does not write to the one that is created in its place."""
        documents = store.documents()
        old = await documents.write("schedule", Document("a", 0, b"1"))
        assert old is not None
        assert await documents.remove("schedule", "a", old.revision)
        await asyncio.sleep(0.002)  # the store's clock counts milliseconds
        new = await documents.write("schedule", Document("a", 0, b"2"))
        assert new is not None
        assert new.revision > old.revision
        assert await documents.write("schedule", old._replace(body=b"3")) is None

    async def test_names_come_in_order_and_kinds_are_apart(self, store: Store) -> None:
        """Page by page."""
        documents = store.documents()
        for name in ("b", "a", "c"):
            await documents.write("template", Document(name, 0, name.encode()))
        assert await documents.names("template") == ["a", "b", "c"]
        assert await documents.names("template", "a", 1) == ["b"]
        assert await documents.names("template", "c") == []
        assert await documents.names("schedule") == []
        assert await documents.read("schedule", "a") is None

    async def test_documents_are_due_by_the_clock_of_the_store(self, store: Store) -> None:
        """The longest waiting first; a write without a time, or a removal, ends that."""
        documents = store.documents()
        now = (await documents.due("schedule", 10)).now_ms
        made = {}
        for name, due_ms in (("late", now - 10), ("later", now - 5), ("far", now + 3_600_000), ("never", 0)):
            made[name] = await documents.write("schedule", Document(name, 0, b"x"), due_ms)
        assert (await documents.due("schedule", 10)).names == ["late", "later"]
        assert (await documents.due("schedule", 1)).names == ["late"]
        late, later = made["late"], made["later"]
        assert late is not None
        assert later is not None
        await documents.write("schedule", late._replace(body=b"y"))
        await documents.remove("schedule", "later", later.revision)
        assert (await documents.due("schedule", 10)).names == []
