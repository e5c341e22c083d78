"""Compiles the bindings in params into templates, and finds their problems."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import jsonpath
from saga_engine.plan.bindings import (
    COMPUTE,
    FIRST,
    WHOLE,
    Place,
    Template,
    _Array,
    _First,
    _Literal,
    _Object,
    _Text,
    bound_node,
)
from saga_engine.plan.limits import MAX_BINDINGS, MAX_COMPLEX_TAILS, MAX_TAIL_CHARS
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from saga_engine.plan.bindings import Node, Source
    from saga_engine.plan.problems import Path, Problems

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
#: The fields of ``$end``: how the saga ended, for the steps of ``finally``.
END_FIELDS: Final = ("status", "reason", "error", "clean", "compensated", "left")


def bindings_in(text: str) -> list[str] | None:
    """What binds in a text, as it is written and in order; None: something in it is escaped or malformed.

    Two texts that bind the same, in the same way, have the same nodes but for the letters between them.
    """
    whole = WHOLE.match(text)
    if whole is not None:
        return [text] if len(whole[1]) == 1 else None
    found: list[str] = []
    at = 0
    for opened in _EMBEDDED.finditer(text):
        if opened.start() < at:
            continue  # inside the quotes of the binding before
        inner = _INNER.match(text, opened.start() + 1, opened.start() + _LONGEST)
        if inner is None or len(opened[1]) > 1:
            return None
        found.append(inner[1])
        at = inner.end()
    return found


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
            whole = WHOLE.match(text)
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
        found = WHOLE.match(text)
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
