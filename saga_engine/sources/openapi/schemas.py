"""Schemas of a document as schemas of a tool: references resolved, OpenAPI's own words translated or dropped.

**What the document accepts, the tool accepts.** A request's schema stays as strict as the document where it can; what
it cannot keep (a circle, a branch beyond its bounds, a word that has no translation, a number that TOML does not have)
accepts any value. A response's schema keeps only names and types: servers return more and less than their documents
say, and an answer that does not fit leaves a write in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from saga_engine.plan.value_schema import SchemaUnusable, Validator
from saga_engine.sources.openapi.all_of import PARTLY, intersected, texts
from saga_engine.sources.openapi.document import Document, mapping
from saga_engine.sources.toml import value as toml

_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
#: Words that a translated schema does not have: without them it accepts more.
_DROPPED: Final = frozenset(
    {
        *("not", "if", "contains", "propertyNames", "patternProperties", "dependencies", "dependentRequired"),
        *("dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
    }
)
#: The formats that a tool's schema checks.
_CHECKED_FORMATS: Final = (
    *("date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri"),
    *(
        "uri-reference",
        "iri",
        "iri-reference",
        "uri-template",
        "uuid",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    ),
)
_DEPTH: Final = 10
_RETURNED_DEPTH: Final = 3
_NODES: Final = 1_000
_MAX_VALUES: Final = 500
_DESCRIPTION_CHARS: Final = 300


class Schemas:
    """Translates the schemas of one operation; what grows beyond its bounds becomes a schema that accepts any value."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0
        #: How often a translation accepts more than the document.
        self._loosened = 0
        #: The references whose schemas are being translated: one inside itself accepts any value.
        self._open: list[str] = []
        self._patterns: dict[str, bool] = {}
        #: The references that cannot be read, with the reason.
        self.unread: dict[str, None] = {}

    def given(self, schema: Any, depth: int = 0, hidden: frozenset[str] = frozenset()) -> dict[str, Any]:
        """The schema of a value that is sent. ``hidden``: properties of its object that are only ever returned."""
        return self._once(schema, depth, lambda schema, depth: self._given(schema, depth, hidden))

    def returned(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """The schema of a value that comes back: names and types, each of which may also be null."""
        return self._once(schema, depth, self._returned)

    def whole(self, schema: Any) -> Mapping[str, Any]:
        """What a schema says in all its parts, not translated."""
        return self._flat(schema)

    def _once(self, schema: Any, depth: int, made: Callable[[Any, int], dict[str, Any]]) -> dict[str, Any]:
        ref = mapping(schema).get("$ref")
        if not isinstance(ref, str):
            return made(schema, depth)
        if ref in self._open:
            return self._anything()
        self._open.append(ref)
        try:
            return made(schema, depth)
        finally:
            self._open.pop()

    def _anything(self) -> dict[str, Any]:
        self._loosen()
        return {}

    def _loosen(self) -> None:
        self._loosened += 1

    # --- requests ------------------------------------------------------------------------------------------------

    def _given(self, schema: Any, depth: int, hidden: frozenset[str]) -> dict[str, Any]:
        source = self._flat(schema)
        if depth > _DEPTH or self._spent():
            return self._anything()
        self._loosened += len(_DROPPED & source.keys())
        made = dict(self._words(source))
        own = mapping(source.get("properties"))
        flat = {str(name): self._flat(each) for name, each in own.items()}
        partly = {name for name, each in flat.items() if PARTLY in each}
        returned = {name for name, each in flat.items() if each.get("readOnly") is True} - partly
        self._loosened += bool(partly or returned)
        hidden |= returned
        required = [name for name in texts(source.get("required")) if name not in hidden | partly]
        sent = [str(name) for name in own if str(name) not in returned]
        # What a call needs is translated first, as long as there is room.
        translated = {
            name: self.given(own.get(name), depth + 1) for name in sorted(sent, key=lambda name: name not in required)
        }
        if translated:
            made["properties"] = {name: translated[name] for name in sent}
        if required:
            made["required"] = required
        if isinstance(source.get("prefixItems"), list):
            made["prefixItems"] = [self.given(each, depth + 1) for each in source["prefixItems"]]
        if isinstance(source.get("items"), Mapping):
            made["items"] = self.given(source["items"], depth + 1)
        made |= self._open_or_closed(source, depth, closed=not returned)
        for word in ("oneOf", "anyOf"):
            made |= self._choice(word, source.get(word), depth, hidden)
        parts = source.get("allOf")
        if isinstance(parts, list):
            made["allOf"] = [part for part in (self.given(each, depth + 1, hidden) for each in parts) if part]
        made = {word: each for word, each in made.items() if each != [] or word == "required"}
        return self._or_null(made) if source.get("nullable") is True else made

    def _words(self, source: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The words that say something about a value alone, each if a tool can have it."""
        for word in (*("type", "enum", "const", "pattern", "uniqueItems"), *_COUNTS, *_BOUNDS):
            if word not in source:
                continue
            found = self._word(word, source[word])
            if found is None:
                self._loosen()
            else:
                yield word, found
        told = sentence(source["description"]) if isinstance(source.get("description"), str) else ""
        for word in ("format", "title"):
            if isinstance(source.get(word), str) and source[word] not in _CHECKED_FORMATS:
                yield word, source[word]
        if source.get("format") in _CHECKED_FORMATS:
            # In a document a format is a hint, and its examples take it so; in a tool's schema it would be a check.
            told = f"{told} ({source['format']})".strip()
        if told:
            yield "description", told

    def _word(self, word: str, value: Any) -> Any:
        """The value of a word; ``None`` if a schema cannot have it."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if word == "type":
            kinds = [value] if isinstance(value, str) else texts(value)
            return (value if isinstance(value, str) else kinds) if kinds and set(kinds) <= set(_TYPES) else None
        if word == "pattern":
            return value if isinstance(value, str) and self._compiles(value) else None
        if word == "uniqueItems":
            return value if isinstance(value, bool) else None
        if word in _COUNTS:
            return int(value) if number and value >= 0 and value == int(value) and _writable(int(value)) else None
        if word in _BOUNDS:
            return value if number and _writable(value) and (word != "multipleOf" or value > 0) else None
        if word == "enum" and not (isinstance(value, list) and 0 < len(value) <= _MAX_VALUES):
            return None
        return value if _writable(value) else None

    def _compiles(self, pattern: str) -> bool:
        """Whether the engine can check a pattern: documents have those of other dialects."""
        if pattern not in self._patterns:
            try:
                Validator({"pattern": pattern})
                self._patterns[pattern] = True
            except SchemaUnusable:
                self._patterns[pattern] = False
        return self._patterns[pattern]

    def _open_or_closed(self, source: Mapping[str, Any], depth: int, *, closed: bool) -> dict[str, Any]:
        more = source.get("additionalProperties")
        if isinstance(more, Mapping):
            return {"additionalProperties": self.given(more, depth + 1)}
        if more is False and (not closed or "patternProperties" in source):
            self._loosen()
            return {}
        return {"additionalProperties": more} if isinstance(more, bool) else {}

    def _choice(self, word: str, branches: Any, depth: int, hidden: frozenset[str]) -> dict[str, Any]:
        """A ``oneOf`` or ``anyOf``. One of whose branches accepts any value says nothing, and is left out.

        Of a ``oneOf`` with a branch that accepts more than the document, several may fit where one should.
        """
        if not isinstance(branches, list) or not branches:
            return {}
        before = self._loosened
        made = [self.given(each, depth + 1, hidden) for each in branches]
        if not all(made):
            self._loosen()
            return {}
        return {word if self._loosened == before else "anyOf": made}

    def _or_null(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema of OpenAPI 3.0 that also accepts null; TOML has no null, so an enumeration is dropped."""
        kinds = schema.get("type")
        if not kinds:
            return {"anyOf": [schema, {"type": "null"}]} if schema else schema
        if schema.keys() & {"enum", "const"}:
            self._loosen()
        made = {word: each for word, each in schema.items() if word not in ("enum", "const")}
        choice = {word: made.pop(word) for word in ("oneOf", "anyOf", "allOf") if word in made}
        if choice:
            return {"anyOf": [{**made, **choice}, {"type": "null"}]}
        return {**made, "type": list(dict.fromkeys([*([kinds] if isinstance(kinds, str) else kinds), "null"]))}

    # --- answers -------------------------------------------------------------------------------------------------

    def _returned(self, schema: Any, depth: int) -> dict[str, Any]:
        source = self._flat(schema)
        if depth > _RETURNED_DEPTH or self._spent():
            return {}
        made: dict[str, Any] = {}
        kinds = source.get("type")
        known = [kind for kind in ([kinds] if isinstance(kinds, str) else texts(kinds)) if kind in _TYPES]
        if known:
            null = list(dict.fromkeys([*known, "null"]))
            made["type"] = known[0] if depth == 0 and len(known) == 1 else null[0] if len(null) == 1 else null
        properties = {
            str(name): self.returned(each, depth + 1) for name, each in mapping(source.get("properties")).items()
        }
        if properties:
            made["properties"] = properties
        if isinstance(source.get("items"), Mapping):
            made["items"] = self.returned(source["items"], depth + 1)
        return made

    # --- parts ---------------------------------------------------------------------------------------------------

    def _spent(self) -> bool:
        self._nodes += 1
        return self._nodes > _NODES

    def _flat(self, schema: Any, within: tuple[str, ...] = ()) -> Mapping[str, Any]:
        """A schema with its reference followed and the parts of its ``allOf`` put together."""
        ref = mapping(schema).get("$ref")
        source: Mapping[str, Any] = self._document.resolved(schema)
        beside: Mapping[str, Any] = {}
        if isinstance(ref, str):
            if ref in within:
                self._loosen()
                return {}
            within = (*within, ref)
            if unread := self._document.unread(schema):
                self.unread[unread] = None
                self._loosen()
            counts = self._document.siblings_count
            beside = {word: each for word, each in schema.items() if word == "nullable" or (counts and word != "$ref")}
        made: dict[str, Any] = _with_strict_bounds({word: each for word, each in source.items() if word != "allOf"})
        parts = source.get("allOf")
        for part in [*(parts if isinstance(parts, list) else ()), *([beside] if beside else ())]:
            if self._spent():
                self._loosen()
                break
            made = intersected(made, self._flat(part, within), self._loosen)
        return made


def _with_strict_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of OpenAPI 3.0, in which a boolean makes the other bound strict, with bounds that are numbers."""
    for least, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(strict), bool) and schema.pop(strict) and least in schema:
            schema[strict] = schema.pop(least)
    return schema


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """The types that a schema names."""
    kinds = schema.get("type")
    return {kinds} if isinstance(kinds, str) else set(texts(kinds))


def _writable(value: Any) -> bool:
    """Whether TOML can express a value: it has no null, and integers of 64 bits."""
    try:
        toml(value)
    except (ValueError, RecursionError):
        return False
    return True


def sentence(text: Any, limit_chars: int = _DESCRIPTION_CHARS) -> str:
    """The first paragraph of a description as one line."""
    first = " ".join(str(text).strip().split("\n\n", 1)[0].split())
    return first if len(first) <= limit_chars else first[: limit_chars - 1].rstrip() + "…"
