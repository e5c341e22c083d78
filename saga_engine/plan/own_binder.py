"""The params of an undo that a tool registers, or that an agent gives: values, except where a whole text binds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from saga_engine.plan import jsonpath
from saga_engine.plan.binder import Binder
from saga_engine.plan.bindings import Node, Place, Source, Template, Within, bound_node
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from saga_engine.plan.compiled import Scope
    from saga_engine.plan.problems import Path, Problems

_OWN = re.compile(r"\$(output|before|params(?=[.\[]))(?![^.\[])")


class _OwnParams(Within):
    """A param of the call that is undone, made again from its template: the journal has no secrets."""

    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self.find(scope.params(self._step))


def _first_name(place: Place) -> str:
    """The param that a binding to ``$params`` names."""
    return str(place.tail.path[0]) if place.tail is not None and place.tail.path else ""


class OwnBinder(Binder):
    """Compiles the params of an undo that a tool registers or an agent gives: values, except where a whole text binds.

    ``$output``, with or without a path, is the call's own output, ``$before`` the value before the call, ``$params``
    with a path its params, ``$key`` its idempotency key. An undo that binds only the last two needs no output, so it
    can undo a call in doubt. ``forward``: the params of the call.
    """

    def __init__(self, keys: Mapping[str, int], problems: Problems, forward: Template | None = None) -> None:
        super().__init__(keys, problems)
        self._forward = forward

    def _text(self, text: str, own: str, base: Path, path: Path, places: list[Place]) -> Node | None:
        if text == "$key":
            place = Place(path, "key", own, None, embedded=False, text=text)
        elif self.item and (text == "$index" or re.match(r"\$item(?![^.\[])", text)):
            return super()._text(text, own, base, path, places)
        elif (own_value := _OWN.match(text)) is None:
            return None
        else:
            source: Source = own_value[1]  # type: ignore[assignment]
            rest = text[own_value.end() :]
            tail = jsonpath.parse(rest) if rest else None
            if isinstance(tail, jsonpath.TailFault):
                self.problems.add(tail.code, base, f"{cut(text, 120)}: {tail.message}", tail.hint)
                return None
            place = Place(path, source, own, tail, embedded=False, text=text)
            if source == "params":
                secrets = {} if self._forward is None else self._forward.secret_nodes()
                _, names = secrets.get(_first_name(place), (None, ()))
                places += [Place(path, "secret", name, None, embedded=False, text=text) for name in sorted(names)]
                places.append(place)
                return _OwnParams(place)
        places.append(place)
        return bound_node(place)
