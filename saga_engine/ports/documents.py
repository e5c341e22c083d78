"""Small named documents beside the journals: templates of plans, schedules, gateways, what the server keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

DocumentKind = Literal["template", "schedule", "gateway", "token", "job", "request", "server"]


class Document(NamedTuple):
    """A document as it is stored. Each write gives it a higher ``revision``."""

    name: str
    revision: int
    body: bytes


class DueDocuments(NamedTuple):
    """The names of documents whose time has come, the longest waiting first; ``now_ms`` is the store's clock."""

    now_ms: int
    names: Sequence[str]


class DocumentStore(Protocol):
    """Documents by kind and name. All verbs are safe to repeat, and raise ``StoreUnavailable`` and ``StoreRefused``.

    The fence is the revision: of two writers that have read the same revision, one writes, and the other is told.
    Different writers must write different bodies, so that a write whose response was lost can be recognized.
    """

    async def read(self, kind: DocumentKind, name: str) -> Document | None:
        """A document; None if there is none with this name."""
        ...

    async def write(self, kind: DocumentKind, document: Document, due_ms: int = 0) -> Document | None:
        """Replace the revision of ``document`` (0: create it), and set when it is due (Unix ms; 0: never).

        Returns it with its new revision, and None if the stored one has another revision. When it returns, the document
        is as durable as a journal of this store. A document that is created again never gets an old revision.
        """
        ...

    async def remove(self, kind: DocumentKind, name: str, revision: int) -> bool:
        """Remove a document of this revision; False: it has another one."""
        ...

    async def names(self, kind: DocumentKind, after: str = "", limit: int = 1000) -> Sequence[str]:
        """Names in order, from the one that follows ``after``."""
        ...

    async def due(self, kind: DocumentKind, limit: int) -> DueDocuments:
        """Documents that are due by now; its cost does not grow with the number of documents."""
        ...
