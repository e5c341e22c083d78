"""What a sealed store does with each field is declared beside its port, and what is not declared is refused."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pytest

from saga_engine import ports
from saga_engine.ports import Claim, GuardStore
from saga_engine.ports.sealing import MESSAGES, VERBS, Name, Sealed, Verb
from saga_engine.privacy.keyring import Keyring
from saga_engine.privacy.sealed_store import SealedStore
from saga_engine.privacy.wrapper import sealing
from saga_engine.stores import open_store

_CLEAR = Verb({"tool": None})


class Wider(GuardStore, Protocol):
    async def peek(self, tool: str) -> str: ...


def wider(row: Verb | None, *, port: type = Wider) -> object:
    return sealing(port, verbs={**VERBS, port: {} if row is None else {"peek": row}})


def test_a_verb_that_is_added_is_refused_until_all_of_it_is_declared() -> None:
    """The verb, each argument, and a text that it returns; so is a row whose verb is gone."""
    with pytest.raises(TypeError, match="'peek' is not declared"):
        wider(None)
    with pytest.raises(TypeError, match="'tool' is not declared"):
        wider(Verb({}))
    with pytest.raises(TypeError, match=r"Wider.peek: no rule for <class 'str'>"):
        wider(_CLEAR)
    with pytest.raises(TypeError, match="'gone' is not there"):
        sealing(GuardStore, verbs={**VERBS, GuardStore: {**VERBS[GuardStore], "gone": _CLEAR}})
    assert hasattr(wider(Verb({"tool": None}, Sealed("result", "tool"))), "peek")


class Message(NamedTuple):
    tool: str
    secret: str


class Telling(GuardStore, Protocol):
    async def peek(self, tool: str) -> Sequence[Message]: ...


def test_a_field_that_is_added_is_refused_until_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a new message and of one that is there, however deep in what a verb takes or returns."""
    with pytest.raises(TypeError, match="Message is not declared"):
        wider(_CLEAR, port=Telling)
    rows = {**VERBS, Telling: {"peek": _CLEAR}}
    with pytest.raises(TypeError, match="Message: 'secret' is not declared"):
        sealing(Telling, verbs=rows, messages={**MESSAGES, Message: {"tool": None}})
    monkeypatch.setitem(Claim.__annotations__, "note", str)
    with pytest.raises(TypeError, match="Claim: 'note' is not declared"):
        sealing(GuardStore)
    monkeypatch.setitem(ports.Creation.__annotations__, "note", str)
    with pytest.raises(TypeError, match="Creation: 'note' is not declared"):
        sealing(ports.Store)


def test_what_is_written_by_hand_is_written() -> None:
    """A class that leaves such a verb out cannot be made; nor is a rule made for what it does not fit."""
    with pytest.raises(TypeError, match="'restore_terms' must be written by hand"):

        class Half(sealing(ports.WorkStore)):  # type: ignore[misc]
            async def take(self, *_: object) -> None: ...

    with pytest.raises(TypeError, match=r"ValueStore.put: .* for <class 'int'>"):
        row = Verb({"digest": None, "data": None, "ttl_ms": Name("number")})
        sealing(ports.ValueStore, verbs={**VERBS, ports.ValueStore: {**VERBS[ports.ValueStore], "put": row}})


async def test_every_part_of_a_sealed_store_is_made_and_has_nothing_else() -> None:
    """No verb of what stores is reached beside its row: one that only the store has is not there."""
    store = SealedStore(open_store("memory://"), Keyring({"k1": bytes(range(32))}))
    await store.open()
    found = {"guard_store", "event_store", "value_store", "documents", "work", "ended", "seals"}
    parts = {name: getattr(store, name)() for name in found}
    for part in (store, *parts.values()):
        type(part.inner).beside = lambda _: None  # what a port does not know
        try:
            assert part.inner.beside() is None
            with pytest.raises(AttributeError):
                part.beside()
        finally:
            del type(part.inner).beside
    assert sum(map(len, VERBS.values())) > 90, "the tables are empty"
    await store.close()
