"""What a JSON Schema costs: to compile, and to check a value against it.

A schema comes from a plan, a tool or a server. References that double, a circle, nested ``unevaluated…`` or a pattern
make a text of 2 kB run for ever, in a library that holds the interpreter's lock meanwhile. So the work is counted
before it is done, as an upper bound and without a look at any value:

* A schema is a graph. An edge leads either to a schema *in place* (``allOf``, ``$ref``, …), which is applied to the
  same value, or *deeper* (``properties``, ``items``, …), to a part of it.
* ``parts``: the schemas that are applied if each is written out in full. A circle that goes deeper counts once: it goes
  on only as long as the value does. A circle in place has no end and is refused.
* ``Cost.of`` a value: how many values of it lie at each depth, times what is applied to one value at that depth. Of
  ``properties`` only one applies to a part; a value is not an object and a list at the same time.

A reference leads to each place that it may mean, so no dialect's rule for names finds a way around the count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The schemas that one schema may consist of, with each reference written out.
MAX_SCHEMAS: Final = 100_000
#: The work of checking one value: about as many applications of a schema, of 100 ns each.
MAX_WORK: Final = 5_000_000
#: Schemas that lead to each other in a row, in place and in all; and the values of JSON in a schema.
MAX_IN_PLACE: Final = 1_000
MAX_CHAIN: Final = 5_000
MAX_NODES: Final = 1_000_000
#: The size of all patterns, with what they repeat written out.
MAX_PATTERNS: Final = 100_000

#: Which schemas a word holds: one, or several in a list or by name; and where they are applied.
_ONE: Final = {
    **dict.fromkeys(("not", "if", "then", "else"), "here"),
    "additionalProperties": "of_names",
    **dict.fromkeys(("unevaluatedProperties", "propertyNames"), "members"),
    **dict.fromkeys(("items", "additionalItems", "unevaluatedItems", "contains"), "items"),
}
_SEVERAL: Final = {
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"), "here"),
    "properties": "of_names",
    "patternProperties": "members",
    **dict.fromkeys(("prefixItems", "items"), "of_places"),
}
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_READS_TEXT: Final = frozenset({"maxLength", "minLength", "format"})
#: ``unevaluated…`` checks the schemas beside it again, and theirs again.
_AGAIN: Final = 4
#: The library's own schemas of JSON Schema: so many parts, for each value.
_OF_JSON_SCHEMA: Final = re.compile(r"https?://json-schema\.org/")
_THEIR_PARTS: Final = 200
#: What only the slower engine for patterns can do: it looks at a text again from each of its characters.
_SLOW_PATTERN: Final = re.compile(r"\(\?(?![:imsux-]|P?<\w)|\\[1-9kKGgZz]|[*+?}]\+|\(\?<[=!]")
_CHARS: Final = 16
_UNIQUE: Final = 10
_KEY_PATTERN: Final = 4
_OTHER_CHOICE: Final = 10
_REPEATED: Final = re.compile(r"\{(\d+)?(?:,(\d*))?\}")


class TooCostly(ValueError):
    """The schema, or the check of a value against it, would take too much work. The text says why."""


@dataclass(slots=True)
class _Node:
    """One schema: what it does to a value itself, and the schemas that it applies."""

    #: Work for each value, for each 16 characters of a text, and for each square of 16 characters.
    work: int = 1
    chars: int = 0
    squares: int = 0
    again: int = 1
    here: list[int] = field(default_factory=list)
    #: Of these at most one is applied to a part of an object, or of a list.
    of_names: list[int] = field(default_factory=list)
    of_places: list[int] = field(default_factory=list)
    #: These are applied to each part of an object, or of a list.
    members: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)

    def edges(self) -> list[int]:
        """All schemas that it applies."""
        return [*self.here, *self.of_names, *self.of_places, *self.members, *self.items]


class Cost:
    """The cost of one schema. Raises ``TooCostly`` if it must not be compiled."""

    def __init__(self, schema: Any) -> None:
        graph = _Graph(schema)
        self._nodes = graph.nodes
        self._order = _in_place_order(self._nodes)
        self._reads_names = graph.reads_names
        self._kinds = 3 if any(node.chars or node.squares for node in self._nodes) else 1
        self._levels: list[tuple[int, int, int]] = []
        self._last: list[list[int]] = []
        #: The schemas with each reference written out.
        self.parts = _parts(self._nodes)

    def of(self, value: Any) -> int:
        """The work of checking a value; more than ``MAX_WORK`` if it is too much."""
        work, here = 0, [value]
        for depth in range(MAX_CHAIN):
            each, chars, squares = self._levels[depth] if depth < len(self._levels) else self._level()
            if not each or not here:
                return work
            work += each * len(here)
            below: list[Any] = []
            for part in here:
                if isinstance(part, str):
                    if chars or squares:
                        work += (chars + squares * len(part)) * (len(part) // _CHARS)
                elif isinstance(part, dict):
                    below += part.values()
                    if self._reads_names:
                        below += part
                elif isinstance(part, list | tuple):
                    below += part
            if work > MAX_WORK:
                return work
            here = below
        return MAX_WORK + 1

    def applied(self) -> int:
        """What is applied to one value and its parts, as deep as values went so far."""
        return sum(level[0] for level in self._levels)

    def _level(self) -> tuple[int, int, int]:
        """What is applied to one value at the next depth: work, and work for the characters of a text."""
        first = not self._levels
        before = self._last or [[0] * len(self._nodes)] * self._kinds
        self._last = [self._next(kind, before[kind], first=first) for kind in range(self._kinds)]
        root = [values[0] for values in self._last]
        self._levels.append((root[0], root[1], root[2]) if self._kinds == 3 else (root[0], 0, 0))
        return self._levels[-1]

    def _next(self, kind: int, before: Sequence[int], *, first: bool) -> list[int]:
        """For each schema what it applies to one value so many levels deeper, from that of one level less."""
        objects, lists = [0] * len(self._nodes), [0] * len(self._nodes)
        for at in self._order:
            node = self._nodes[at]
            if first:
                objects[at] = lists[at] = (node.work, node.chars, node.squares)[kind]
            else:
                if node.of_names:
                    objects[at] = max([before[to] for to in node.of_names])
                if node.members:
                    objects[at] += sum([before[to] for to in node.members])
                if node.of_places:
                    lists[at] = max([before[to] for to in node.of_places])
                if node.items:
                    lists[at] += sum([before[to] for to in node.items])
            if node.here:
                objects[at] = min(objects[at] + node.again * sum([objects[to] for to in node.here]), MAX_WORK + 1)
                lists[at] = min(lists[at] + node.again * sum([lists[to] for to in node.here]), MAX_WORK + 1)
        return [max(pair) for pair in zip(objects, lists, strict=True)]


def _in_place_order(nodes: Sequence[_Node]) -> list[int]:
    """All schemas, each after those that it applies in place. Raises ``TooCostly`` for a circle."""
    return _after(nodes, lambda node: node.here, refuse_circles=True)


def _after(nodes: Sequence[_Node], edges: Callable[[_Node], Iterable[int]], *, refuse_circles: bool) -> list[int]:
    """All schemas, each after those to which its edges lead."""
    most = MAX_IN_PLACE if refuse_circles else MAX_CHAIN
    seen, open_, order = [False] * len(nodes), [False] * len(nodes), []
    for root in range(len(nodes)):
        if seen[root]:
            continue
        seen[root] = open_[root] = True
        stack = [(root, iter(edges(nodes[root])))]
        while stack:
            at, rest = stack[-1]
            for to in rest:
                if not seen[to]:
                    if len(stack) >= most:
                        raise TooCostly(f"more than {most:,} of its parts lead to each other in a row")
                    seen[to] = open_[to] = True
                    stack.append((to, iter(edges(nodes[to]))))
                    break
                if refuse_circles and open_[to]:
                    raise TooCostly("it refers to itself in a circle that goes no deeper into the value")
            else:
                stack.pop()
                open_[at] = False
                order.append(at)
    return order


def _parts(nodes: Sequence[_Node]) -> int:
    """The schemas with each reference written out. Raises ``TooCostly`` if there are too many."""
    found = [0] * len(nodes)  # one that is not counted yet lies on a circle
    for at in _after(nodes, _Node.edges, refuse_circles=False):
        node = nodes[at]
        count = 1
        for some in (node.members, node.items):
            count += sum([found[to] or 1 for to in some])
        for one in (node.of_names, node.of_places):
            count += max([found[to] or 1 for to in one], default=0)
        found[at] = count + node.again * sum([found[to] or 1 for to in node.here])
        if found[at] > MAX_SCHEMAS:
            raise TooCostly(f"with each of its references written out it has more than {MAX_SCHEMAS:,} parts")
    return found[0]


# --- the graph -----------------------------------------------------------------------------------------------------


class _Graph:
    """The schemas that may be applied, from the first one on."""

    def __init__(self, schema: Any) -> None:
        self.nodes: list[_Node] = []
        self.reads_names = False
        self._places = _Places(schema)
        self._known: dict[int, int] = {}
        self._open: list[tuple[int, dict[str, Any]]] = []
        self._patterns = 0
        self._at(schema)
        while self._open:
            at, source = self._open.pop()
            self._read(self.nodes[at], source)

    def _new(self, node: _Node) -> int:
        if len(self.nodes) >= MAX_SCHEMAS:
            raise TooCostly(f"it has more than {MAX_SCHEMAS:,} parts")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _at(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            return self._new(_Node())
        if id(schema) not in self._known:
            self._known[id(schema)] = self._new(_Node())
            self._open.append((self._known[id(schema)], schema))
        return self._known[id(schema)]

    def _read(self, node: _Node, source: dict[str, Any]) -> None:
        for word, value in source.items():
            if isinstance(value, dict | bool) and word in _ONE:
                getattr(node, _ONE[word]).append(self._at(value))
            elif word in _SEVERAL and isinstance(value, dict | list | tuple):
                several = getattr(node, _SEVERAL[word])
                for each in value.values() if isinstance(value, dict) else value:
                    if isinstance(each, dict | bool):
                        several.append(self._at(each))
                if word == "patternProperties":
                    self._read_names(node, value)
            elif word in _REFERENCES:
                if isinstance(value, str):
                    node.here += self._referred(source, value, dynamic=word != "$ref")
            elif word in _READS_TEXT:
                node.chars += 1
            elif word == "pattern":
                self._read_pattern(node, value)
            elif word in _DATA:
                node.work += _DATA[word](value)
            elif word == "uniqueItems" and value is True:
                node.items.append(self._new(_Node(work=_UNIQUE)))
        if "unevaluatedProperties" in source or "unevaluatedItems" in source:
            node.again = _AGAIN
        self.reads_names = self.reads_names or "propertyNames" in source

    def _read_names(self, node: _Node, patterns: Any) -> None:
        """Each pattern looks at the name of each part of an object."""
        self.reads_names = True
        for pattern in patterns:
            reader = _Node(work=_KEY_PATTERN)
            self._read_pattern(reader, pattern)
            node.members.append(self._new(reader))

    def _read_pattern(self, node: _Node, pattern: Any) -> None:
        if not isinstance(pattern, str):
            return
        self._patterns += _written_out(pattern)
        if self._patterns > MAX_PATTERNS:
            raise TooCostly(f"its patterns, with what they repeat written out, have more than {MAX_PATTERNS:,} parts")
        slow = _SLOW_PATTERN.search(pattern) is not None
        node.chars += 1
        node.squares += slow

    def _referred(self, source: dict[str, Any], reference: str, *, dynamic: bool) -> list[int]:
        found = list(dict.fromkeys(map(self._at, self._places.of(source, reference, dynamic=dynamic))))
        if not found and _OF_JSON_SCHEMA.match(reference):
            parts = self._new(_Node(work=_THEIR_PARTS, chars=_THEIR_PARTS))
            self.nodes[parts].of_names.append(parts)
            self.nodes[parts].of_places.append(parts)
            return [parts]
        if not found:
            elsewhere = "" if reference.startswith("#") else ": a schema must not refer to another document"
            raise TooCostly(f"its reference {reference[:200]!r} leads to no place in it{elsewhere}")
        return found


class _Places:
    """Where the references of a schema lead."""

    def __init__(self, root: Any) -> None:
        self._root = root
        #: The base of each object, and what has a name: by its address, and by the name of its anchor alone.
        self._bases: dict[int, str] = {}
        self._named: dict[str, list[Any]] = {"": [root]}
        self._dynamic: list[Any] = []
        self._read()

    def _read(self) -> None:
        open_: list[tuple[Any, str]] = [(self._root, "")] if isinstance(self._root, dict) else []
        while open_:
            value, base = open_.pop()
            if id(value) in self._bases:
                continue
            if not isinstance(value, dict):
                self._bases[id(value)] = base
                open_ += [(each, base) for each in value if isinstance(each, dict | list | tuple)]
                continue
            for word in ("$id", "id"):
                if isinstance(value.get(word), str):
                    base = _joined(base, value[word])
                    self._name(base, value)
                    self._name(base.partition("#")[0], value)
            self._bases[id(value)] = base
            if len(self._bases) > MAX_NODES:
                raise TooCostly(f"it has more than {MAX_NODES:,} parts")
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(value.get(word), str):
                    self._name(f"{base.partition('#')[0]}#{value[word]}", value)
                    self._name(f"#{value[word]}", value)
            if "$dynamicAnchor" in value or "$recursiveAnchor" in value:
                self._dynamic.append(value)
            open_ += [(each, base) for each in value.values() if isinstance(each, dict | list | tuple)]

    def _name(self, address: str, value: Any) -> None:
        self._named.setdefault(address, []).append(value)

    def of(self, source: dict[str, Any], reference: str, *, dynamic: bool) -> list[Any]:
        """Every place that a reference may mean."""
        base = self._bases.get(id(source), "").partition("#")[0]
        found: list[Any] = []
        for address in {_joined(base, reference), reference}:
            found += self._named.get(address, ())
            whole, _, fragment = address.partition("#")
            roots = [*self._named.get(whole, ()), *((self._root,) if whole and reference[:1] == "#" else ())]
            found += [place for root in roots if (place := _pointed(root, fragment)) is not None]
        if dynamic:
            name = reference.partition("#")[2]
            found += [each for each in self._dynamic if each.get("$dynamicAnchor", name) == name]
        return found


def _joined(base: str, reference: str) -> str:
    try:
        return reference if not base or ":" in reference.partition("/")[0] else urljoin(base, reference)
    except ValueError:
        return reference


def _pointed(root: Any, fragment: str) -> Any:
    """The place that a JSON Pointer names; ``None`` if there is none (RFC 6901)."""
    if fragment and not fragment.startswith("/"):
        return None
    for token in fragment.split("/")[1:]:
        name = unquote(token).replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and name.isdecimal() and len(name) < 10 and int(name) < len(root):
            root = root[int(name)]
        elif isinstance(root, dict) and name in root:
            root = root[name]
        else:
            return None
    return root if isinstance(root, dict | bool) else None


# --- what a word costs ---------------------------------------------------------------------------------------------


def _size(value: Any) -> int:
    """The values of JSON in a value."""
    count, open_ = 0, [value]
    while open_ and count <= MAX_NODES:
        each = open_.pop()
        count += 1
        if isinstance(each, dict | list):
            open_ += each.values() if isinstance(each, dict) else each
    return count


def _choices(value: Any) -> int:
    """An ``enum``: texts alone, or numbers alone, are found at once; of others each is compared."""
    if not isinstance(value, list):
        return 0
    kinds = {type(each) for each in value}
    if kinds <= {str} or kinds <= {int}:
        return 1
    return _OTHER_CHOICE * _size(value)


_DATA: Final[dict[str, Callable[[Any], int]]] = {
    "enum": _choices,
    "const": lambda value: _size(value) // _OTHER_CHOICE,
    "required": _size,
    "dependentRequired": _size,
}


def _written_out(pattern: str) -> int:
    """The parts of a pattern, with what it repeats written out; a class is five."""
    groups, last, at = [0], 0, 0
    while at < len(pattern):
        char = pattern[at]
        repeated = _REPEATED.match(pattern, at) if char == "{" else None
        step = 1
        if repeated is not None:
            count = max(int(number[:6]) for number in (repeated[1] or "1", repeated[2] or "1"))
            groups[-1] += last * (max(count, 1) - 1)
            last *= max(count, 1)
            step = len(repeated[0])
        elif char == "(":
            groups.append(0)
        elif char == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        else:
            step = 2 if char == "\\" else _class_chars(pattern, at) if char == "[" else 1
            last = 5 if char in "\\[" else 1
            groups[-1] += last
        at += step
        if sum(groups) > MAX_PATTERNS:
            break
    return sum(groups)


def _class_chars(pattern: str, at: int) -> int:
    end = at + 2
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1 - at
