"""Which calls undo a call: the one place for every way to say it, in plans, fallbacks, sessions and tables of tools.

A plan or an agent that only names the undo that the tool registers gets that undo, with all that the registration says
of it: its params, its list, and the calls that follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from saga_engine.plan.bindings import Template
from saga_engine.plan.own_binder import OwnBinder
from saga_engine.plan.undo_params import UndoParams

if TYPE_CHECKING:
    from saga_engine.plan.bindings import Place
    from saga_engine.plan.compiled import CompiledRead, Params
    from saga_engine.plan.model_parts import UndoCalls
    from saga_engine.plan.problems import Path, Problems
    from saga_engine.plan.tool_spec import ToolSpec

#: The name of the list in the template of an undo's ``each``.
EACH: Final = "each"
_OWN: Final = re.compile(r"\$output(?![^.\[])")


class UndoOf(NamedTuple):
    """What a registration, a plan or an agent says of the undo of a call.

    ``params``: None: nothing, so each parameter gets the field of its name (``UndoParams``). ``each``: the list of
    which each item gets a call. ``then``: the calls that follow (``tool``, ``params``, ``each``); None: nothing is said
    of them.
    """

    tool: str
    params: Mapping[str, Any] | None = None
    each: str | None = None
    then: Sequence[Mapping[str, Any]] | None = None

    @property
    def only_names(self) -> bool:
        """Whether it names a tool and says nothing of the call."""
        return self.params is None and self.each is None

    def like(self, registered: UndoOf | None) -> UndoOf:
        """The undo that is meant: what is said, and for an undo that is only named all that is registered."""
        if registered is None or self.tool != registered.tool or not self.only_names:
            return self
        return registered if self.then is None else registered._replace(then=self.then)

    def calls(self) -> Sequence[UndoOf]:
        """Its calls, in order; the params of those that follow are said."""
        then = (UndoOf(call["tool"], call.get("params") or {}, call.get(EACH)) for call in self.then or ())
        return (self, *then)


def registered_undo(spec: ToolSpec | None) -> UndoOf | None:
    """The undo that a tool registers."""
    if spec is None or spec.undo is None:
        return None
    return UndoOf(spec.undo, spec.undo_params, spec.undo_each, spec.undo_then)


def written_undo(written: UndoCalls) -> UndoOf:
    """The undo that a plan says."""
    then = None if written.then is None else [call.model_dump(exclude_unset=True) for call in written.then]
    return UndoOf(written.tool, written.params if "params" in written.model_fields_set else None, written.each, then)


def to_slot(undo: UndoOf) -> str:
    """A registered undo as it is journalled: its tool, or, if more is said of it, its calls as JSON."""
    if undo.only_names and not undo.then:
        return undo.tool
    first: dict[str, Any] = {"tool": undo.tool}
    if undo.params is not None or undo.each is not None:
        first["params"] = undo.params or {}
    if undo.each is not None:
        first[EACH] = undo.each
    return msgspec.json.encode([first, *map(dict, undo.then or ())]).decode()


def of_slot(slot: str | None) -> UndoOf | None:
    """The registered undo that was journalled; None: there is none."""
    if slot is None or not slot.startswith("["):
        return None if slot is None else UndoOf(slot)
    first, *then = msgspec.json.decode(slot, type=list[dict[str, Any]])
    return UndoOf(first["tool"], first.get("params"), first.get(EACH), then)


def own_params(
    undo: UndoOf, key: str, forward: Params, problems: Problems, path: Path
) -> tuple[Template | None, Template | None]:
    """The params and the list of an undo that binds what its own call got and returned, its key and its before-image.

    No params: ``UndoParams`` fills them in.
    """
    binder, listed = OwnBinder({}, problems, forward if isinstance(forward, Template) else None), undo.each is not None
    params = None
    if undo.params is not None or listed:
        params = binder.template(dict(undo.params or {}), key, path, item=listed)
    return params, binder.template({EACH: undo.each}, key, path) if listed else None


def lacking(params: Params, forward: Params) -> Iterator[Place]:
    """The bindings of an undo to params that its call does not have."""
    for place in params.places if isinstance(params, Template) else ():
        name = place.tail.path[:1] if place.source == "params" and place.tail is not None else ()
        if name and name[0] not in forward.raw:
            yield place


def in_plan(value: Any, key: str) -> Any:
    """A registered value as a plan writes it: ``$output`` is the output of the step ``key``."""
    if isinstance(value, str):
        return _OWN.sub(lambda _: f"$output.step_{key}", value, count=1) if _OWN.match(value) else value
    if isinstance(value, Mapping):
        return {name: in_plan(each, key) for name, each in value.items()}
    return [in_plan(each, key) for each in value] if isinstance(value, list | tuple) else value


def is_same(usual: Params | None, raw: Mapping[str, Any], key: str) -> bool:
    """Whether params that a plan writes like this are those of the registration whenever they have values."""
    if isinstance(usual, UndoParams):
        return usual.are(raw)
    return isinstance(usual, Template) and in_plan(usual.raw, key) == raw


def usual_params(spec: ToolSpec | None, key: str, forward: Params, read: CompiledRead | None) -> UndoParams:
    """The params of the undo ``spec`` of a call, where nobody says them; ``read``: the read of its before-image."""
    assert isinstance(forward, Template)
    schema = None if spec is None else spec.input_schema
    return UndoParams(schema, key, forward, None if read is None else read.params.raw)
