"""Schemas of a document as schemas of a tool: references resolved, OpenAPI's own words translated or dropped.

A request's schema stays as strict as the document. A response's schema keeps only names and types: servers return more
and less than their documents say, and an answer that does not fit leaves a write in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from saga_engine.sources.openapi.document import Document, mapping

#: Words of JSON Schema that say something about a value alone.
_KEPT: Final = (
    *("type", "format", "enum", "const", "pattern", "title", "description"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required"),
)
_DEPTH: Final = 8
_RETURNED_DEPTH: Final = 3
_NODES: Final = 400
_DESCRIPTION_CHARS: Final = 300


class Schemas:
    """Translates the schemas of one operation; what grows beyond its bounds becomes a schema that accepts any value."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0
        #: The references whose schemas are being translated: one inside itself accepts any value.
        self._open: list[str] = []

    def given(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """The schema of a value that is sent."""
        return self._once(schema, depth, self._given)

    def returned(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """The schema of a value that comes back: names and types, each of which may also be null."""
        return self._once(schema, depth, self._returned)

    def _once(self, schema: Any, depth: int, made: Callable[[Any, int], dict[str, Any]]) -> dict[str, Any]:
        ref = mapping(schema).get("$ref")
        if not isinstance(ref, str):
            return made(schema, depth)
        if ref in self._open:
            return {}
        self._open.append(ref)
        try:
            return made(schema, depth)
        finally:
            self._open.pop()

    def _given(self, schema: Any, depth: int) -> dict[str, Any]:
        source = self._merged(self._document.resolved(schema))
        self._nodes += 1
        if depth > _DEPTH or self._nodes > _NODES:
            return {}
        made = {word: source[word] for word in _KEPT if source.get(word) is not None}
        if isinstance(made.get("enum"), list) and None in made["enum"]:
            del made["enum"]  # TOML has no null
        if isinstance(made.get("description"), str):
            made["description"] = sentence(made["description"])
        for least, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            # In OpenAPI 3.0 a boolean makes the other bound strict.
            if isinstance(made.get(strict), bool) and made.pop(strict) and least in made:
                made[strict] = made.pop(least)
        properties = {
            str(name): self.given(each, depth + 1)
            for name, each in mapping(source.get("properties")).items()
            if self._document.resolved(each).get("readOnly") is not True
        }
        if properties:
            made["properties"] = properties
        required = [name for name in texts(made.pop("required", None)) if name in properties]
        if required:
            made["required"] = required
        if isinstance(source.get("items"), Mapping):
            made["items"] = self.given(source["items"], depth + 1)
        more = source.get("additionalProperties")
        if isinstance(more, bool):
            made["additionalProperties"] = more
        elif isinstance(more, Mapping):
            made["additionalProperties"] = self.given(more, depth + 1)
        for word in ("oneOf", "anyOf"):
            if isinstance(source.get(word), list):
                made[word] = [self.given(each, depth + 1) for each in source[word]]
        return _nullable(made) if source.get("nullable") is True else made

    def _returned(self, schema: Any, depth: int) -> dict[str, Any]:
        source = self._merged(self._document.resolved(schema))
        self._nodes += 1
        if depth > _RETURNED_DEPTH or self._nodes > _NODES:
            return {}
        made: dict[str, Any] = {}
        kinds = source.get("type")
        if isinstance(kinds, str):
            made["type"] = kinds if depth == 0 else [kinds, "null"]
        elif isinstance(kinds, list):
            made["type"] = kinds if "null" in kinds else [*kinds, "null"]
        properties = {
            str(name): self.returned(each, depth + 1) for name, each in mapping(source.get("properties")).items()
        }
        if properties:
            made["properties"] = properties
        if isinstance(source.get("items"), Mapping):
            made["items"] = self.returned(source["items"], depth + 1)
        return made

    def _merged(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        """A schema with the parts of its ``allOf`` put together."""
        parts = source.get("allOf")
        if not isinstance(parts, list):
            return source
        made: dict[str, Any] = {word: value for word, value in source.items() if word != "allOf"}
        required = texts(made.pop("required", None))
        properties = dict(mapping(made.get("properties")))
        for part in parts:
            self._nodes += 1
            if self._nodes > _NODES:
                break
            one = self._merged(self._document.resolved(part))
            properties = {**mapping(one.get("properties")), **properties}
            required += [name for name in texts(one.get("required")) if name not in required]
            made = {**{word: value for word, value in one.items() if word not in ("properties", "required")}, **made}
        return {
            **made,
            **({"properties": properties} if properties else {}),
            **({"required": required} if required else {}),
        }


def texts(value: Any) -> list[str]:
    """The texts of a list; none if it is no list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def sentence(text: Any, limit_chars: int = _DESCRIPTION_CHARS) -> str:
    """The first paragraph of a description as one line."""
    first = " ".join(str(text).strip().split("\n\n", 1)[0].split())
    return first if len(first) <= limit_chars else first[: limit_chars - 1].rstrip() + "…"


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of OpenAPI 3.0 that also accepts null."""
    kinds = schema.get("type")
    if not isinstance(kinds, str):
        return schema
    return {**{word: value for word, value in schema.items() if word != "enum"}, "type": [kinds, "null"]}
