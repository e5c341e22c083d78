"""Named documents in the same Redis or Valkey as the journals.

saga:{d:<kind>}:doc:<name>   hash   revision, the one before, body
saga:{d:<kind>}:names        zset   the names, in lexical order
saga:{d:<kind>}:due          zset   names by due_ms
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from saga_engine.ports import Document, DocumentKind, DueDocuments

if TYPE_CHECKING:
    from saga_engine.stores.repair import Mender

_CONFLICT: Final = -1


class RedisDocuments:
    """A ``DocumentStore`` (see ``ports``) beside the journals of a ``RedisStore``."""

    def __init__(self, mender: Mender, namespace: str) -> None:
        self._mender = mender
        self._namespace = namespace

    async def read(self, kind: DocumentKind, name: str) -> Document | None:
        """A document; None if there is none with this name."""
        revision, body = await self._mender.plain("HMGET", self._key(kind, f"doc:{name}"), "revision", "body")
        return None if revision is None or body is None else Document(name, int(revision), body)

    async def write(self, kind: DocumentKind, document: Document, due_ms: int = 0) -> Document | None:
        """Replace the revision of ``document`` (0: create it); see ``ports.DocumentStore``."""
        args: list[str | int | bytes] = [document.name, document.revision, due_ms, document.body]
        revision = await self._mender.run("document", self._keys(kind, document.name), args)
        return None if revision == _CONFLICT else document._replace(revision=revision)

    async def remove(self, kind: DocumentKind, name: str, revision: int) -> bool:
        """Remove a document of this revision; False: it has another one."""
        return bool(await self._mender.run("document", self._keys(kind, name), [name, revision, 0]) != _CONFLICT)

    async def names(self, kind: DocumentKind, after: str = "", limit: int = 1000) -> Sequence[str]:
        """Names in order, from the one that follows ``after``."""
        first = f"({after}" if after else "-"
        found = await self._mender.plain(
            "ZRANGEBYLEX", self._key(kind, "names"), first, "+", "LIMIT", "0", str(min(limit, 10_000))
        )
        return [str(name, "utf-8", "replace") for name in found]

    async def due(self, kind: DocumentKind, limit: int) -> DueDocuments:
        """Documents that are due by now."""
        now, *names = await self._mender.run("document_due", [self._key(kind, "due")], [limit])
        return DueDocuments(now, [str(name, "utf-8", "replace") for name in names])

    def _keys(self, kind: DocumentKind, name: str) -> list[str]:
        return [self._key(kind, f"doc:{name}"), self._key(kind, "names"), self._key(kind, "due")]

    def _key(self, kind: DocumentKind, rest: str) -> str:
        return f"{self._namespace}:{{d:{kind}}}:{rest}"
