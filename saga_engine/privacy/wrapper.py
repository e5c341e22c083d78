"""The wrapper of a port of a store, made from what ``ports.sealing`` says of each of its fields.

A member, an argument, a field or a text without a row is refused when the wrapper is made, and the wrapper has no
member that the port lacks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass, replace
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from saga_engine.errors import SagaError
from saga_engine.loggers import logger_of
from saga_engine.ports.sealing import IDENTITY, MESSAGES, VERBS, Each, Fields, Name, Rule, Sealed, Token, Verb
from saga_engine.privacy.cipher import place
from saga_engine.privacy.store_key import Sealer

_log = logger_of("saga_engine.privacy")

#: What is done to a value: with what is clear around it, by name, and with the store that has the key.
Change = Callable[[Any, Mapping[str, Any], Sealer], Any]
Way = Literal["seal", "open"]
#: What is no text reveals nothing.
_PLAIN: Final = (int, bool, NoneType)


class Sealing:
    """A part of a sealed store. ``inner``: the part that stores; ``sealer``: the store that has the keys."""

    #: The verbs that a subclass writes.
    by_hand: ClassVar[Collection[str]] = ()

    def __init_subclass__(cls) -> None:
        for name in () if "by_hand" in vars(cls) else cls.by_hand:
            if name not in vars(cls):
                raise TypeError(f"{cls.__name__}: {name!r} must be written by hand")

    def __init__(self, inner: Any, sealer: Sealer) -> None:
        self.inner = inner
        self.sealer = sealer


def sealing(
    *ports: type, verbs: Mapping[type, Mapping[str, Verb]] = VERBS, messages: Mapping[Any, Fields] = MESSAGES
) -> Any:
    """A class that seals these ports but for the verbs that are written by hand, which are those of its subclass.

    Raises ``TypeError`` for what a port has and its table lacks, and the other way round.
    """
    made: dict[str, Any] = {"by_hand": [name for port in ports for name, row in verbs[port].items() if row.by_hand]}
    for port in (each for given in ports for each in given.__mro__ if getattr(each, "_is_protocol", False)):
        members = {**vars(port), **inspect.get_annotations(port)}
        _same(port.__name__, [name for name in members if not name.startswith("_")], verbs.get(port, {}))
        for name, row in verbs.get(port, {}).items():
            member = _Maker(f"{port.__name__}.{name}", row, messages).member(port, name)
            if not row.by_hand:
                made[name] = member
    return type(f"Sealed{ports[0].__name__}", (Sealing,), made)


def _same(of: str, found: Collection[str], declared: Collection[str]) -> None:
    for name in sorted({*found} ^ {*declared}):
        raise TypeError(
            f"{of}: {name!r} is {'not' if name in found else 'not there, and'} declared in saga_engine.ports.sealing"
        )


class _Maker:
    """Makes one member of a wrapper."""

    def __init__(self, where: str, row: Verb, messages: Mapping[Any, Fields]) -> None:
        self._where, self._row, self._messages = where, row, messages

    def member(self, port: type, name: str) -> Any:
        """What the wrapper has in the place of a port's member."""
        there, row = vars(port).get(name), self._row
        hints = get_type_hints(there.fget if isinstance(there, property) else there or port)
        result = hints.pop("return" if there else name)
        given = hints if inspect.isfunction(there) else {}
        _same(self._where, given, row.given)
        seals = {
            each: change for each, hint in given.items() if (change := self._change(hint, row.given[each], "seal"))
        }
        if result in VERBS:
            return lambda self: self.sealer.part(result)(getattr(self.inner, name)(), self.sealer)
        opens = self._change(result, "by hand" if row.by_hand else row.returns, "open", listed=False)
        if not seals and opens is None:
            return property(attrgetter(f"inner.{name}"))
        if not inspect.iscoroutinefunction(there):
            raise TypeError(f"{self._where} must be written by hand")
        signature = inspect.signature(there).parameters.values()
        return _verb(name, {each.name: each.default for each in signature if each.name != "self"}, seals, opens)

    def _change(self, hint: Any, rule: Rule | None, way: Way, *, listed: bool = True) -> Change | None:
        """What is done to a value of this type; None: nothing. ``listed``: a text without a rule is clear."""
        kind, args = get_origin(hint), get_args(hint)
        if kind in (Union, UnionType):
            return self._either([each for each in args if each is not NoneType], rule, way, listed)
        if hint in self._messages:
            change = self._message(hint, way)
            return None if rule in ("by hand", "stored") else change
        if hasattr(hint, "_fields") or is_dataclass(hint):
            raise TypeError(f"{self._where}: {hint.__name__} is not declared in saga_engine.ports.sealing")
        if kind is tuple and ... not in args:
            each_rule = [None if each in _PLAIN else rule for each in args]
            return _one_by_one([self._change(*each, way, listed=listed) for each in zip(args, each_rule, strict=True)])
        if kind in (tuple, list, Sequence):
            change = self._change(args[0], rule, way, listed=listed)
            return None if change is None else lambda value, at, sealer: [change(each, at, sealer) for each in value]
        if kind is Mapping and isinstance(rule, Each):
            return _mapping(rule, way)
        if isinstance(rule, Sealed | Name | Token) and hint in (str, bytes):
            return _text(rule, way)
        if rule not in ("by hand", "stored", None) or not (listed or rule or kind is Literal or hint in _PLAIN):
            raise TypeError(f"{self._where}: {rule or 'no rule'} for {hint} in saga_engine.ports.sealing")
        return None

    def _either(self, hints: Sequence[Any], rule: Rule | None, way: Way, listed: bool) -> Change | None:
        changes = [self._change(each, rule, way, listed=listed) for each in hints]
        if not any(changes):
            return None
        (change,) = changes  # whichever of several it is would have to be found out
        assert change is not None
        return lambda value, at, sealer: None if value is None else change(value, at, sealer)

    def _message(self, of: Any, way: Way) -> Change | None:
        hints, rows = get_type_hints(of), self._messages[of]
        _same(of.__name__, hints, rows)
        changes = {name: self._change(hint, rows[name], way) for name, hint in hints.items()}
        if not any(changes.values()):
            return None

        def changed(value: Any, at: Mapping[str, Any], sealer: Sealer) -> Any:
            at, new = dict(at), {}
            for name, change in changes.items():
                clear = getattr(value, name)
                if change is not None:
                    new[name] = change(clear, at, sealer)
                    clear = clear if way == "seal" else new[name]
                if clear or name not in at:  # (a message that leaves it out is of what was asked for)
                    at[name] = clear
            made = replace if is_dataclass(value) else type(value)._replace
            return made(value, **new)

        return changed


def _verb(name: str, defaults: Mapping[str, Any], seals: Mapping[str, Change], opens: Change | None) -> Any:
    names, spare = (
        tuple(defaults),
        {each: value for each, value in defaults.items() if value is not inspect.Parameter.empty},
    )

    async def verb(self: Sealing, *args: Any, **options: Any) -> Any:
        at = {**spare, **dict(zip(names[: len(args)], args, strict=True)), **options}
        given = at | {each: change(at[each], at, self.sealer) for each, change in seals.items()}
        found = await getattr(self.inner, name)(**given)
        return found if opens is None else opens(found, at, self.sealer)

    verb.__name__ = name
    return verb


def _one_by_one(changes: Sequence[Change | None]) -> Change | None:
    if not any(changes):
        return None
    return lambda value, at, sealer: tuple(
        each if change is None else change(each, at, sealer) for each, change in zip(value, changes, strict=True)
    )


def _mapping(rule: Each, way: Way) -> Change:
    change = _text(rule.value, way)

    def changed(value: Mapping[str, Any], at: Mapping[str, Any], sealer: Sealer) -> Mapping[str, Any]:
        found = {key: change(each, {**at, rule.key: key}, sealer) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None}

    return changed


def _text(rule: Sealed | Name | Token, way: Way) -> Change:
    """What is done to a text, or to bytes."""
    parts = rule.at.split()

    def where(at: Mapping[str, Any]) -> list[str]:
        found: list[str] = []
        for part in parts:
            value = at[part]
            found += [getattr(value, each) for each in IDENTITY[type(value)]] if type(value) in IDENTITY else [value]
        return found

    def sealed(value: Any, at: Mapping[str, Any], sealer: Sealer) -> Any:
        key = sealer.shared
        if isinstance(rule, Name):
            return key.name(rule.kind, *where(at), value)
        if not value and (isinstance(rule, Token) or rule.empty):
            return value
        if isinstance(rule, Token):
            return key.token(rule.kind, *where(at), value)
        seal = key.key.seal_text if isinstance(value, str) else key.key.seal_bytes
        return seal(place(rule.kind, *where(at)), value)

    def opened(value: Any, at: Mapping[str, Any], sealer: Sealer) -> Any:
        if isinstance(rule, Token):
            return sealer.shared.untoken(rule.kind, *where(at), value) if value else value
        assert isinstance(rule, Sealed), f"a {rule.kind} cannot be read"
        if not value and rule.empty:
            return value
        try:
            key = sealer.shared
            return (key.open_text if isinstance(value, str) else key.open)(place(rule.kind, *where(at)), value)
        except SagaError as error:
            if rule.lost == "refused":
                raise
            _log.debug("a %s cannot be read: %s", rule.kind, error)
            return {"kept": value, "empty": type(value)(), "absent": None}[rule.lost]

    return sealed if way == "seal" else opened
