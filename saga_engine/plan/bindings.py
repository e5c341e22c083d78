"""Bindings: the values in params that are known only when the call is made.

If a whole text is a binding, the value replaces it and keeps its type. Inside a longer text a binding stands in braces
and becomes text. Only ``$output``, ``$input``, ``$saga``, ``$key`` and ``$secret`` bind; an additional dollar in front
makes a literal. Keys of objects are never bindings. A bound value is data: the engine never searches it for bindings or
secrets, so a tool that returns ``$secret.TOKEN`` gets no secret.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import jsonpath
from saga_engine.plan.limits import MAX_BINDINGS, MAX_COMPLEX_TAILS, MAX_TAIL_CHARS, MAX_TEXT_CHARS
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from saga_engine.plan.compiled import Scope
    from saga_engine.plan.problems import Path, Problems

Source = Literal["output", "input", "saga", "key", "secret"]

_WHOLE = re.compile(r"(\$+)(output|input|saga|key|secret)(?!\w)")
_EMBEDDED = re.compile(r"\{(\$+)(output|input|saga|key|secret)(?!\w)")
# Up to the brace that closes it; braces in quotes belong to the path.
_INNER = re.compile(r"((?:[^'\"{}\\]|'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\")*+)\}", re.DOTALL)
_STEP = re.compile(r"\.step_([A-Za-z0-9_-]{1,64})(?![A-Za-z0-9_-])")
_NAME = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]{0,127})\Z")
_OWN = re.compile(r"\$output(?![^.\[])")
_LONGEST = MAX_TAIL_CHARS + 200

_FORMS = {
    "output": "write $output.step_<id>.field",
    "input": "write $input.field",
    "saga": "write $saga.id",
    "key": "write $key, with nothing after it",
    "secret": "write $secret.NAME: letters, digits and '_'",
}
_encode = msgspec.json.Encoder().encode


class Place(NamedTuple):
    """The place of a binding in the params, and what it names (``step`` is a step's key)."""

    path: Path
    source: Source
    step: str
    tail: jsonpath.Tail | None
    embedded: bool
    text: str


class _Node(Protocol):
    """A part of a template with a binding at or below it."""

    def get(self, scope: Scope) -> Any:
        """The value for one call."""
        ...

    def sample(self, inputs: Mapping[str, Any]) -> Any:
        """The value as far as the plan's input alone determines it; the other bindings stay as they are written."""
        ...


class _Within:
    """A value, or a part of it, that replaces a binding."""

    __slots__ = ("_path", "_step", "_tail", "_text")

    def __init__(self, place: Place) -> None:
        self._text = place.text
        self._step = place.step
        self._tail = place.tail
        # The common case is a plain chain, with or without a tail.
        self._path = () if place.tail is None else None if place.tail.selectors else place.tail.path

    def _find(self, value: Any) -> Any:
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
            ) from None

    def sample(self, inputs: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return self._text


class _Output(_Within):
    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self._find(scope.output(self._step))


class _Input(_Within):
    __slots__ = ()

    def get(self, scope: Scope) -> Any:
        return self._find(scope.input)

    def sample(self, inputs: Mapping[str, Any]) -> Any:
        try:
            return self._find(inputs)
        except BindingUnresolved:
            # The check of the bindings reports it with all others.
            return self._text


class _SagaId(_Within):
    __slots__ = ()

    def get(self, scope: Scope) -> str:
        return scope.saga_id


class _Key(_Within):
    __slots__ = ()

    def get(self, scope: Scope) -> str:
        return scope.key(self._step)


class _Secret(_Within):
    __slots__ = ()

    def get(self, scope: Scope) -> str:
        return scope.secret(self._step)


_Bound = _Output | _Input | _SagaId | _Key | _Secret
_NODES: dict[Source, type[_Bound]] = {
    "output": _Output,
    "input": _Input,
    "saga": _SagaId,
    "key": _Key,
    "secret": _Secret,
}


def _bound(place: Place) -> _Bound:
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

    def __init__(self, raw: dict[str, Any], nodes: dict[str, _Node]) -> None:
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

    def __init__(self, raw: list[Any], nodes: dict[int, _Node]) -> None:
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

    __slots__ = ("_root", "bound", "outputs", "places", "raw", "secret_params", "secrets")

    def __init__(self, raw: dict[str, Any], root: _Object | None, places: tuple[Place, ...]) -> None:
        self.raw = raw
        self._root = root
        self.places = places
        self.bound = bool(places)
        self.secrets = frozenset(place.step for place in places if place.source == "secret")
        self.secret_params = frozenset(str(place.path[0]) for place in places if place.source == "secret")
        self.outputs = frozenset(place.step for place in places if place.source == "output")

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

    def secret_nodes(self) -> dict[str, tuple[_Node, frozenset[str]]]:
        """The top-level params that need a secret: how to resolve each, and the names of its secrets."""
        if self._root is None or not self.secrets:
            return {}
        needed: dict[str, set[str]] = {}
        for place in self.places:
            if place.source == "secret":
                needed.setdefault(str(place.path[0]), set()).add(place.step)
        return {key: (self._root.nodes[key], frozenset(names)) for key, names in needed.items()}


class UndoParams:
    """The params of a registered undo that the plan does not specify.

    Each parameter of the undo gets the field of that name in the step's output, else the step's own param of that name.
    A parameter that neither has is omitted or, if the undo requires it, raises ``BindingUnresolved``. The same error is
    raised for an undo that names parameters and gets none of them: called without them, it would undo nothing and
    report success.
    """

    __slots__ = (
        "_forward_secrets", "_key", "_names", "_required", "bound", "outputs", "raw", "secret_params", "secrets"
    )  # fmt: skip

    def __init__(self, schema: Mapping[str, Any] | None, key: str, forward: Template) -> None:
        """``schema`` is the undo's input schema. Without one (the tool is unknown here) the undo needs the output."""
        properties, required = (schema.get("properties"), schema.get("required")) if schema else (None, None)
        names = list(properties) if isinstance(properties, dict) else []
        self._required = frozenset(name for name in required if name in names) if isinstance(required, list) else ()
        self._names = tuple(names)
        self._key = key
        # The stored params do not hold the secrets themselves, so these are resolved again.
        nodes = forward.secret_nodes()
        self._forward_secrets = {name: nodes[name][0] for name in names if name in nodes}
        self.bound = True
        self.raw: dict[str, Any] = {}
        self.secrets = frozenset(secret for name in self._forward_secrets for secret in nodes[name][1])
        self.secret_params = frozenset(self._forward_secrets)
        needs_output = schema is None or any(name not in forward.raw for name in self._required)
        needs_output = needs_output or (bool(names) and not any(name in forward.raw for name in names))
        self.outputs = frozenset({key} if needs_output else ())

    def are(self, raw: Mapping[str, Any]) -> bool:
        """Whether params that are written like this have the same values whenever they have any."""
        return bool(self._names) and raw == {name: f"$output.step_{self._key}.{name}" for name in self._names}

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of the undo. Raises ``BindingUnresolved``."""
        try:
            output = scope.output(self._key)
        except BindingUnresolved:
            if self.outputs:
                raise
            # It is unknown whether the step happened, and the undo can be called without its output.
            output = None
        fields = output if isinstance(output, dict) else {}
        given: Mapping[str, Any] | None = None
        made: dict[str, Any] = {}
        for name in self._names:
            if name in fields:
                made[name] = fields[name]
                continue
            if given is None:
                given = scope.params(self._key)
            if name in self._forward_secrets:
                made[name] = self._forward_secrets[name].get(scope)
            elif name in given:
                made[name] = given[name]
            elif name in self._required:
                raise BindingUnresolved(
                    f"the undo requires '{name}', which step {self._key} has neither in its output nor in its params",
                    hint="add a rollback with params to the step",
                    binding=name,
                    step=self._key,
                )
        if self._names and not made:
            raise BindingUnresolved(
                f"the undo would get no params: neither the output nor the params of step {self._key} have any of "
                f"{cut(', '.join(self._names), 200)}",
                hint="add a rollback with params to the step",
                binding=self._names[0],
                step=self._key,
            )
        return made


class _Malformed(Exception):
    """A text that looks like a binding and is not one."""

    def __init__(self, fault: jsonpath.TailFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Binder:
    """Compiles the params of one plan and adds the problems of its bindings to ``problems``."""

    def __init__(self, keys: Mapping[str, int], problems: Problems) -> None:
        self._keys = keys
        self._problems = problems
        self._complex: set[str] = set()
        self._count = 0

    def template(self, raw: dict[str, Any], own: str, path: Path) -> Template:
        """The template of ``raw``, which stands at ``path`` in the plan and belongs to the step with key ``own``."""
        places: list[Place] = []
        before = self._count
        root = self._object(raw, own, path, (), places)
        if before <= MAX_BINDINGS < self._count:
            message = f"the plan has more than {MAX_BINDINGS} bindings"
            self._problems.add("limit-bindings", path, message, "let a tool pass the values on")
        return Template(raw, root, tuple(places))

    def _object(self, raw: dict[str, Any], own: str, base: Path, path: Path, places: list[Place]) -> _Object | None:
        nodes: dict[str, _Node] = {}
        for key, value in raw.items():
            node = self._node(value, own, base, (*path, key), places)
            if node is not None:
                nodes[key] = node
        return _Object(raw, nodes) if nodes else None

    def _node(self, value: Any, own: str, base: Path, path: Path, places: list[Place]) -> _Node | None:
        """A node for a value with bindings, ``None`` for one without. The parser has already bounded the depth."""
        if isinstance(value, str):
            return self._text(value, own, base, path, places) if "$" in value else None
        if isinstance(value, dict):
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

    def _text(self, text: str, own: str, base: Path, path: Path, places: list[Place]) -> _Node | None:
        if self._count > MAX_BINDINGS:
            return None
        try:
            whole = _WHOLE.match(text)
            if whole is not None and len(whole[1]) == 1:
                place = self._parse(text, own, path, embedded=False)
                places.append(place)
                return _bound(place)
            start = text[1:] if whole is not None else text
            pieces = list(self._pieces(start, own, path))
        except _Malformed as malformed:
            code, message, hint = malformed.fault
            self._problems.add(code, (*base, *path), f"{cut(text, 120)}: {message}", hint)
            return None
        found = [piece for piece in pieces if isinstance(piece, Place)]
        if not found:
            literal = "".join(piece for piece in pieces if isinstance(piece, str))
            return _Literal(literal) if literal != text else None
        places.extend(found)
        return _Text(text, [piece if isinstance(piece, str) else _bound(piece) for piece in pieces])

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
        if rest != {"saga": ".id", "key": ""}[source]:
            raise self._malformed(source, embedded=embedded)
        return Place(path, source, own, None, embedded, text)

    def _parse_output(self, text: str, rest: str, path: Path, *, embedded: bool) -> Place:
        step = _STEP.match(rest)
        if step is None:
            raise self._malformed("output", embedded=embedded)
        tail = rest[step.end() :]
        # A plan may itself contain a step with the id 'step_1'.
        key = next((key for key in (step[1], f"step_{step[1]}") if key in self._keys), None)
        if key is None:
            known = list(self._keys) if not self._problems.full() else []
            near = self._problems.did_you_mean(step[1], known) or known_names(known, "steps")
            raise _Malformed(jsonpath.TailFault("binding-unknown-step", f"there is no step {step[1]}", near))
        return Place(path, "output", key, self._tail(tail) if tail else None, embedded, text)

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


class OwnBinder(Binder):
    """Compiles the params of the undo of a session's call: values, except where a whole text binds.

    ``$output``, with or without a path, is the call's own output, ``$key`` its idempotency key. An undo that binds only
    the key needs no output, so it can undo a call in doubt.
    """

    def _text(self, text: str, own: str, base: Path, path: Path, places: list[Place]) -> _Node | None:
        if text == "$key":
            place = Place(path, "key", own, None, embedded=False, text=text)
        elif _OWN.match(text) is None:
            return None
        else:
            rest = text.removeprefix("$output")
            tail = jsonpath.parse(rest) if rest else None
            if isinstance(tail, jsonpath.TailFault):
                self._problems.add(tail.code, base, f"{cut(text, 120)}: {tail.message}", tail.hint)
                return None
            place = Place(path, "output", own, tail, embedded=False, text=text)
        places.append(place)
        return _bound(place)
