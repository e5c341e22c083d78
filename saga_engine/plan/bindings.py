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
from saga_engine.plan.limits import MAX_BINDINGS, MAX_COMPLEX_TAILS, MAX_TAIL_CHARS, MAX_TEXT_CHARS
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from saga_engine.plan.compiled import Scope
    from saga_engine.plan.problems import Path, Problems

Source = Literal["output", "input", "saga", "key", "secret", "before", "item", "index", "end", "params"]

_WHOLE = re.compile(r"(\$++)(output|input|saga|key|secret|before|item|index|end)(?!\w)")
_EMBEDDED = re.compile(r"\{(\$++)(output|input|saga|key|secret|before|item|index|end)(?!\w)")
# Up to the brace that closes it; braces in quotes belong to the path.
_INNER = re.compile(r"((?:[^'\"{}\\]|'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\")*+)\}", re.DOTALL)
_ID = re.compile(r"\.([A-Za-z0-9_-]{1,64})(?![A-Za-z0-9_-])")
_STEP = re.compile(r"\.step_([A-Za-z0-9_-]{1,64})(?![A-Za-z0-9_-])")
_NAME = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]{0,127})\Z")
_LONGEST = MAX_TAIL_CHARS + 200

_FORMS = {
    "output": "write $output.step_<id>.field",
    "input": "write $input.field",
    "saga": "write $saga.id",
    "key": "write $key, with nothing after it",
    "secret": "write $secret.NAME: letters, digits and '_'",
    "before": "write $before, or $before.field",
    "item": "write $item or $item.field",
    "index": "write $index, with nothing after it",
    "end": "write $end.status or another field of the end",
}
#: The key of an object that stands for the first of its values that there is.
FIRST: Final = "$first"
#: The key of an object that stands for the result of a computation.
COMPUTE: Final = "$compute"
#: The fields of ``$end``: how the saga ended, for the steps of ``finally``.
END_FIELDS: Final = ("status", "reason", "error", "clean", "compensated", "left")
_encode = msgspec.json.Encoder().encode


def starts_binding(text: str) -> bool:
    """Whether a text begins like a binding, whatever follows; an escaped one does not."""
    found = _WHOLE.match(text)
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


_Bound = _Output | _Input | _SagaId | _Key | _Secret | _Before | _Item | _Index | _End
_NODES: dict[Source, type[_Bound]] = {
    "output": _Output, "input": _Input, "saga": _SagaId, "key": _Key, "secret": _Secret,
    "before": _Before, "item": _Item, "index": _Index, "end": _End,
}  # fmt: skip


def bound_node(place: Place) -> _Bound:
    """The node of a binding."""
    return _NODES[place.source](place)


class _Text:
    """A text with bindings embedded in it."""

    __slots__ = ("_pieces", "_raw")

    def __init__(self, raw: str, pieces: list[str | _Bound]) -> None:
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
        self.secrets = frozenset(place.step for place in places if place.source == "secret")
        self.secret_params = frozenset(str(place.path[0]) for place in places if place.source == "secret")
        self.outputs_or_default = frozenset(place.step for place in places if place.source == "output")
        self.outputs = frozenset(place.step for place in places if place.source == "output" and not place.optional)

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


class _Malformed(Exception):
    """A text that looks like a binding and is not one."""

    def __init__(self, fault: jsonpath.TailFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Binder:
    """Compiles the params of one plan and adds the problems of its bindings to ``problems``."""

    def __init__(
        self,
        keys: Mapping[str, int],
        problems: Problems,
        *,
        end: bool = False,
        inline: Callable[..., Any] | None = None,
    ) -> None:
        """``end``: the params are resolved at its end, so ``$end`` binds. ``inline`` compiles computations in them."""
        self._inline: Callable[..., Any] | None = inline
        self._keys = keys
        self.problems = problems
        self._end = end
        self._complex: set[str] = set()
        self._count = 0
        self.item = self.computes = False  # ``computes``: whether a computation was compiled with it

    def template(self, raw: dict[str, Any], own: str, path: Path, *, item: bool = False) -> Template:
        """The template of ``raw``, which stands at ``path`` in the plan and belongs to the step with key ``own``.

        ``item``: it is resolved for each item of a list, so ``$item`` and ``$index`` bind.
        """
        places: list[Place] = []
        self.item = item
        before = self._count
        root = self._object(raw, own, path, (), places)
        if before <= MAX_BINDINGS < self._count:
            message = f"the plan has more than {MAX_BINDINGS} bindings"
            self.problems.add("limit-bindings", path, message, "let a tool pass the values on")
        return Template(raw, root, tuple(places))

    def _object(self, raw: dict[str, Any], own: str, base: Path, path: Path, places: list[Place]) -> _Object | None:
        nodes: dict[str, Node] = {}
        for key, value in raw.items():
            node = self._node(value, own, base, (*path, key), places)
            if node is not None:
                nodes[key] = node
        return _Object(raw, nodes) if nodes else None

    def _node(self, value: Any, own: str, base: Path, path: Path, places: list[Place]) -> Node | None:
        """A node for a value with bindings, ``None`` for one without. The parser has already bounded the depth."""
        if isinstance(value, str):
            return self._text(value, own, base, path, places) if "$" in value else None
        if isinstance(value, dict):
            if FIRST in value:
                return self._first(value, own, base, path, places)
            if COMPUTE in value and self._inline is not None:
                return self._computed(value, own, base, path, places)
            return self._object(value, own, base, path, places)
        if isinstance(value, list):
            nodes = {}
            for index, item in enumerate(value):
                if isinstance(item, str | dict | list):
                    node = self._node(item, own, base, (*path, index), places)
                    if node is not None:
                        nodes[index] = node
            return _Array(value, nodes) if nodes else None
        return None

    def _first(self, raw: dict[str, Any], own: str, base: Path, path: Path, places: list[Place]) -> Node | None:
        """Each value but the last must bind: after a literal, which is always there, nothing can follow."""
        values = raw[FIRST]
        sound = len(raw) == 1 and isinstance(values, list) and len(values) > 1
        found = self.problems.count
        inner: list[Place] = []
        nodes = (
            [self._node(value, own, base, (*path, FIRST, at), inner) for at, value in enumerate(values)]
            if sound
            else []
        )
        if self.problems.count > found:
            return None
        if not sound or any(node is None for node in nodes[:-1]):
            message = f"'{FIRST}' takes a list of bindings, of which the last may be a literal"
            hint = f'write {{"{FIRST}": ["$output.step_1.ref", null]}}'
            self.problems.add("binding-malformed", (*base, *path), message, hint)
            return None
        # The schema of a tool knows the place of the whole alone.
        last = (*path, FIRST, len(values) - 1)
        places += [
            place._replace(path=path, optional=place.optional or place.path[: len(last)] != last) for place in inner
        ]
        return _First(raw, [node for node in nodes if node is not None], values[-1:] if nodes[-1] is None else [])

    def _computed(self, raw: dict[str, Any], own: str, base: Path, path: Path, places: list[Place]) -> Node | None:
        assert self._inline is not None
        item = self.item
        node: Node | None
        node, bound = self._inline(self, raw, own, (*base, *path), item=item)
        self.item = item
        places += [place._replace(path=path, computed=True) for place in bound]
        return node

    def _text(self, text: str, own: str, base: Path, path: Path, places: list[Place]) -> Node | None:
        if self._count > MAX_BINDINGS:
            return None
        try:
            whole = _WHOLE.match(text)
            if whole is not None and len(whole[1]) == 1:
                place = self._parse(text, own, path, embedded=False)
                places.append(place)
                return bound_node(place)
            start = text[1:] if whole is not None else text
            pieces = list(self._pieces(start, own, path))
        except _Malformed as malformed:
            code, message, hint = malformed.fault
            self.problems.add(code, (*base, *path), f"{cut(text, 120)}: {message}", hint)
            return None
        found = [piece for piece in pieces if isinstance(piece, Place)]
        if not found:
            literal = "".join(piece for piece in pieces if isinstance(piece, str))
            return _Literal(literal) if literal != text else None
        places.extend(found)
        return _Text(text, [piece if isinstance(piece, str) else bound_node(piece) for piece in pieces])

    def _pieces(self, text: str, own: str, path: Path) -> Iterator[str | Place]:
        """The literal parts of a text and the bindings embedded in it, in order."""
        at = 0
        for opened in _EMBEDDED.finditer(text):
            if opened.start() < at:
                continue  # inside the quotes of the binding before
            yield text[at : opened.start()]
            if len(opened[1]) > 1:
                yield "{" + opened[0][2:]
                at = opened.end()
                continue
            inner = _INNER.match(text, opened.start() + 1, opened.start() + _LONGEST)
            if inner is None:
                hint = "close it with '}' within 256 characters, or write '{$$' for a literal '{$'"
                raise _Malformed(jsonpath.TailFault("binding-malformed", "a binding in braces is not closed", hint))
            yield self._parse(inner[1], own, path, embedded=True)
            at = inner.end()
        yield text[at:]

    def _parse(self, text: str, own: str, path: Path, *, embedded: bool) -> Place:
        """One binding, from its dollar to its end."""
        self._count += 1
        found = _WHOLE.match(text)
        assert found is not None, text
        source: Source = found[2]  # type: ignore[assignment]
        rest = text[found.end() :]
        if source == "output":
            return self._parse_output(text, rest, path, embedded=embedded)
        if source == "input":
            if not rest.startswith((".", "[")):
                raise self._malformed(source, embedded=embedded)
            return Place(path, source, "", self._tail(rest), embedded, text)
        if source == "secret":
            name = _NAME.match(rest)
            if name is None:
                raise self._malformed(source, embedded=embedded)
            return Place(path, source, name[1], None, embedded, text)
        if source == "before" or (source == "item" and self.item):
            if rest and not rest.startswith((".", "[")):
                raise self._malformed(source, embedded=embedded)
            of = own if source == "before" else ""
            return Place(path, source, of, self._tail(rest) if rest else None, embedded, text)
        if source in {"item", "index"} and not self.item:
            hint = (
                f"it binds in a step with 'each', whose conditions on items are the 'when' inside of 'each', and in "
                f"'of' and 'where' of a computation; for a literal '${source}' write '$${source}'"
            )
            raise _Malformed(jsonpath.TailFault("binding-malformed", f"${source} has no list here", hint))
        if source == "end":
            return self._parse_end(text, rest, path, embedded=embedded)
        if rest != {"saga": ".id", "key": "", "index": ""}[source]:
            raise self._malformed(source, embedded=embedded)
        return Place(path, source, own, None, embedded, text)

    def _parse_output(self, text: str, rest: str, path: Path, *, embedded: bool) -> Place:
        step = _STEP.match(rest)
        if step is None:
            named = _ID.match(rest)
            if named and named[1] in self._keys:  # the usual slip
                hint = f"did you mean $output.step_{named[1]}{printable(rest[named.end() :], 80)}?"
                raise _Malformed(jsonpath.TailFault("binding-malformed", "it is not a valid binding", hint))
            raise self._malformed("output", embedded=embedded)
        tail = rest[step.end() :]
        # A plan may itself contain a step with the id 'step_1'.
        key = next((key for key in (step[1], f"step_{step[1]}") if key in self._keys), None)
        if key is None:
            known = list(self._keys) if not self.problems.full() else []
            near = self.problems.did_you_mean(step[1], known) or known_names(known, "steps")
            raise _Malformed(jsonpath.TailFault("binding-unknown-step", f"there is no step {step[1]}", near))
        return Place(path, "output", key, self._tail(tail) if tail else None, embedded, text)

    def _parse_end(self, text: str, rest: str, path: Path, *, embedded: bool) -> Place:
        if not self._end:
            hint = "it binds in the steps of 'finally'; for a literal '$end' write '$$end'"
            raise _Malformed(jsonpath.TailFault("binding-malformed", "$end binds only in the steps of 'finally'", hint))
        if rest and not rest.startswith((".", "[")):
            raise self._malformed("end", embedded=embedded)
        tail = self._tail(rest) if rest else None
        field = tail.path[0] if tail is not None and tail.path else ""
        if field and field not in END_FIELDS:
            hint = self.problems.did_you_mean(str(field), END_FIELDS) or known_names(END_FIELDS, "fields of $end")
            raise _Malformed(jsonpath.TailFault("binding-path-absent", f"$end has no field {cut(field, 64)}", hint))
        return Place(path, "end", "", tail, embedded, text)

    def _tail(self, text: str) -> jsonpath.Tail:
        if text not in self._complex and len(text) <= MAX_TAIL_CHARS and jsonpath.scan(text) is None:
            if len(self._complex) >= MAX_COMPLEX_TAILS:
                message = f"the plan has more than {MAX_COMPLEX_TAILS} paths that are more than fields and indexes"
                raise _Malformed(jsonpath.TailFault("limit-tails", message, "let a tool select the values"))
            self._complex.add(text)
        tail = jsonpath.parse(text)
        if isinstance(tail, jsonpath.TailFault):
            raise _Malformed(tail)
        return tail

    def _malformed(self, source: Source, *, embedded: bool) -> _Malformed:
        literal = f"'{{$${source}'" if embedded else f"'$${source}'"
        braces = "" if embedded else "; inside a text put it in braces"
        hint = f"{_FORMS[source]}{braces}; for a literal '${source}' write {literal}"
        return _Malformed(jsonpath.TailFault("binding-malformed", "it is not a valid binding", hint))
