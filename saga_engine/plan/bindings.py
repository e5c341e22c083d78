"""Bindings: the values in params that are known only when the call is made.

If a whole text is a binding, the value replaces it and keeps its type. Inside a longer text a binding stands in braces
and becomes text. Only ``$output``, ``$input``, ``$saga``, ``$key`` and ``$secret`` bind, in an undo ``$before``, over a
list ``$item`` and ``$index``, and in ``finally`` ``$end``; an additional dollar in front makes a literal. Keys of
objects are never bindings, but the object ``{"$first": [a, b, …]}`` stands for the first of its values that there is
(the output of a step that was skipped is none, and neither is a path that matches nothing), and ``{"$compute": …}`` for
the result of a computation. A bound value is data: the
engine never searches it for bindings or secrets, so a tool that returns ``$secret.TOKEN`` gets no secret.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import jsonpath
from saga_engine.plan.limits import MAX_TEXT_CHARS
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from saga_engine.plan.compiled import Scope
    from saga_engine.plan.problems import Path

Source = Literal["output", "input", "saga", "key", "secret", "before", "item", "index", "end", "params"]

#: A binding at the start of a text; an additional dollar escapes it.
WHOLE: Final = re.compile(r"(\$++)(output|input|saga|key|secret|before|item|index|end)(?!\w)")


#: The key of an object that stands for the first of its values that there is.
FIRST: Final = "$first"
#: The key of an object that stands for the result of a computation.
COMPUTE: Final = "$compute"
_encode = msgspec.json.Encoder().encode


def starts_binding(text: str) -> bool:
    """Whether a text begins like a binding, whatever follows; an escaped one does not."""
    found = WHOLE.match(text)
    return found is not None and len(found[1]) == 1


class Place(NamedTuple):
    """The place of a binding in the params, and what it names (``step`` is a step's key).

    ``optional``: another value takes its place if it has none. ``computed``: it is an operand of a computation, whose
    result stands at ``path``.
    """

    path: Path
    source: Source
    step: str
    tail: jsonpath.Tail | None
    embedded: bool
    text: str
    optional: bool = False
    computed: bool = False


class Node(Protocol):
    """A part of a template with a binding at or below it."""

    def get(self, scope: Scope) -> Any:
        """The value for one call."""
        ...

    def sample(self, inputs: Mapping[str, Any]) -> Any:
        """The value as far as the plan's input alone determines it; the other bindings stay as they are written."""
        ...


class Within:
    """A value, or a part of it, that replaces a binding."""

    __slots__ = ("_path", "_step", "_tail", "_text")

    def __init__(self, place: Place) -> None:
        self._text = place.text
        self._step = place.step
        self._tail = place.tail
        # The common case is a plain chain, with or without a tail.
        self._path = () if place.tail is None else None if place.tail.selectors else place.tail.path

    def find(self, value: Any) -> Any:
        """The part of a value that is bound. Raises ``BindingUnresolved``."""
        try:
            if self._path is not None:
                return jsonpath.follow(value, self._path)
            assert self._tail is not None
            return jsonpath.find(value, self._tail)
        except jsonpath.Mismatch as mismatch:
            raise BindingUnresolved(
                f"the binding {self._text} does not match exactly one value: {mismatch}",
                hint="compare the binding with the value that the step returned",
                binding=self._text,
                step=self._step,
                absent=not isinstance(mismatch, jsonpath.Ambiguous),
            ) from None

    def sample(self, inputs: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """The binding as it is written: the input says nothing of it."""
        return self._text


class _Output(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self.find(scope.output(self._step))


class _Before(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self.find(scope.before(self._step))


class _Input(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self.find(scope.input)

    def sample(self, inputs: Mapping[str, Any]) -> Any:
        try:
            return self.find(inputs)
        except BindingUnresolved:
            # The check of the bindings reports it with all others.
            return self._text


class _End(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self.find(scope.end)


class _SagaId(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> str:
        return scope.saga_id


class _Key(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> str:
        return scope.key(self._step)


class _Secret(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> str:
        return scope.secret(self._step)


class _Item(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self.find(scope.item)


class _Index(Within):
    __slots__ = ()

    def get(self, scope: Scope) -> int:
        return scope.index


BoundNode = _Output | _Input | _SagaId | _Key | _Secret | _Before | _Item | _Index | _End
_NODES: dict[Source, type[BoundNode]] = {
    "output": _Output, "input": _Input, "saga": _SagaId, "key": _Key, "secret": _Secret,
    "before": _Before, "item": _Item, "index": _Index, "end": _End,
}  # fmt: skip


def bound_node(place: Place) -> BoundNode:
    """The node of a binding."""
    return _NODES[place.source](place)


class _Text:
    """A text with bindings embedded in it."""

    __slots__ = ("_pieces", "_raw")

    def __init__(self, raw: str, pieces: list[str | BoundNode]) -> None:
        self._raw = raw
        self._pieces = pieces

    def sample(self, inputs: Mapping[str, Any]) -> Any:  # noqa: ARG002 -- a text stays a text, whatever fills it
        return self._raw

    def get(self, scope: Scope) -> str:
        texts: list[str] = []
        length = 0
        for piece in self._pieces:
            value = piece if isinstance(piece, str) else piece.get(scope)
            text = value if isinstance(value, str) else _encode(value).decode()
            length += len(text)
            if length > MAX_TEXT_CHARS:
                raise BindingUnresolved(
                    f"a text has more than {MAX_TEXT_CHARS} characters after its bindings are filled in",
                    hint="bind the value alone and not inside a text, or bind a part of it",
                    binding=cut(self._raw, 200),
                )
            texts.append(text)
        return "".join(texts)


class _Object:
    """An object with bindings below it; all calls share the parts without bindings."""

    __slots__ = ("_raw", "nodes")

    def __init__(self, raw: dict[str, Any], nodes: dict[str, Node]) -> None:
        self._raw = raw
        self.nodes = nodes

    def get(self, scope: Scope) -> dict[str, Any]:
        made = self._raw.copy()
        for key, node in self.nodes.items():
            made[key] = node.get(scope)
        return made

    def sample(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._raw, **{key: node.sample(inputs) for key, node in self.nodes.items()}}

    def over(self, raw: dict[str, Any]) -> _Object:
        return _Object(raw, {key: _over(node, raw[key]) for key, node in self.nodes.items()})


class _Array:
    """A list with bindings below it."""

    __slots__ = ("_nodes", "_raw")

    def __init__(self, raw: list[Any], nodes: dict[int, Node]) -> None:
        self._raw = raw
        self._nodes = nodes

    def get(self, scope: Scope) -> list[Any]:
        made = self._raw.copy()
        for index, node in self._nodes.items():
            made[index] = node.get(scope)
        return made

    def sample(self, inputs: Mapping[str, Any]) -> list[Any]:
        made = self._raw.copy()
        for index, node in self._nodes.items():
            made[index] = node.sample(inputs)
        return made

    def over(self, raw: list[Any]) -> _Array:
        return _Array(raw, {index: _over(node, raw[index]) for index, node in self._nodes.items()})


def _over(node: Node, raw: Any) -> Node:
    """The node of a value of the same shape; a binding that is a whole text is the same in each of them."""
    return node.over(raw) if isinstance(node, _Object | _Array) else node


class _First:
    """Values of which the first that there is counts; ``literal`` is the last one, if it is no binding."""

    __slots__ = ("_literal", "_nodes", "_raw")

    def __init__(self, raw: dict[str, Any], nodes: Sequence[Node], literal: list[Any]) -> None:
        self._raw = raw
        self._nodes = nodes
        self._literal = literal

    def get(self, scope: Scope) -> Any:
        missing: BindingUnresolved | None = None
        for node in self._nodes:
            try:
                return node.get(scope)
            except BindingUnresolved as error:
                if not error.context.get("absent"):
                    raise
                missing = error
        if self._literal:
            return self._literal[0]
        assert missing is not None
        raise missing

    def sample(self, inputs: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return self._raw


class _Literal:
    """A text in which an escaped binding stands for itself."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get(self, scope: Scope) -> str:  # noqa: ARG002
        return self._text

    def sample(self, inputs: Mapping[str, Any]) -> str:  # noqa: ARG002
        return self._text


class Template:
    """Params, compiled (:class:`saga_engine.plan.compiled.Params`).

    The value of ``resolve`` may share its unbound parts with the plan and its bound parts with the outputs they came
    from. Copy it before you pass it to foreign code.
    """

    __slots__ = ("_root", "bound", "outputs", "outputs_or_default", "places", "raw", "secret_params", "secrets")

    def __init__(self, raw: dict[str, Any], root: _Object | None, places: tuple[Place, ...]) -> None:
        self.raw = raw
        self._root = root
        self.places = places
        self.bound = bool(places)
        none: frozenset[str] = frozenset()
        self.secrets = self.secret_params = self.outputs = self.outputs_or_default = none
        for place in places:  # which most params have none of, and a new plan has many templates
            if place.source == "secret":
                self.secrets |= {place.step}
                self.secret_params |= {str(place.path[0])}
            elif place.source == "output":
                self.outputs_or_default |= {place.step}
                self.outputs |= set() if place.optional else {place.step}

    def over(self, raw: dict[str, Any]) -> Template:
        """The same template of other params, which have the same bindings in the same places (``plan.shapes``)."""
        made = Template.__new__(Template)
        made.raw, made._root = raw, None if self._root is None else self._root.over(raw)  # noqa: SLF001 - it is one of ours
        made.places, made.bound = self.places, self.bound
        made.secrets, made.secret_params = self.secrets, self.secret_params
        made.outputs, made.outputs_or_default = self.outputs, self.outputs_or_default
        return made

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of a call. Raises ``BindingUnresolved``."""
        return self.raw if self._root is None else self._root.get(scope)

    def sample(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The params as far as the plan's input alone determines them, for the check against the tool's schema."""
        return self.raw if self._root is None else self._root.sample(inputs)

    def partly(self, names: Iterable[str], scope: Scope) -> dict[str, Any]:
        """Those of the params called ``names`` whose bindings have a value."""
        nodes = {} if self._root is None else self._root.nodes
        found: dict[str, Any] = {}
        for name in names:
            if name in self.raw:
                try:
                    found[name] = nodes[name].get(scope) if name in nodes else self.raw[name]
                except BindingUnresolved:
                    continue
        return found

    def secret_nodes(self) -> dict[str, tuple[Node, frozenset[str]]]:
        """The top-level params that need a secret: how to resolve each, and the names of its secrets."""
        if self._root is None or not self.secrets:
            return {}
        needed: dict[str, set[str]] = {}
        for place in self.places:
            if place.source == "secret":
                needed.setdefault(str(place.path[0]), set()).add(place.step)
        return {key: (self._root.nodes[key], frozenset(names)) for key, names in needed.items()}
