"""Operations of a document as ``[http.NAME]`` tables, with comments on what only an operator can know.

A document says how an API is called. It does not say which call takes another one back, for how long the server
remembers an idempotency key, or whether a POST only searches. These stay comments, and ``saga tools --lint`` asks for
them. Each table is declared once before it is printed, so that what is printed loads.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from saga_engine.errors import SagaError, SettingInvalid
from saga_engine.plan.values import printable
from saga_engine.sources.http.declaration import http_tools
from saga_engine.sources.openapi.body import request_of
from saga_engine.sources.openapi.document import Document, Operation, mapping
from saga_engine.sources.openapi.failures import failed_field
from saga_engine.sources.openapi.request import NotDeclarable, Request, is_json
from saga_engine.sources.openapi.schemas import Schemas, sentence
from saga_engine.sources.toml import key, value

_NAME_CHARS: Final = 64
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SEARCHES: Final = re.compile(r"search|query|find|lookup|validate|preview|quote|estimate|calculate", re.IGNORECASE)
_LAST_PARAM: Final = re.compile(r"/\{[^{}/]+\}/?$")


@dataclass(frozen=True, slots=True)
class Drafted:
    """A table: the operation that it calls, as ``POST /orders``, its TOML, and what the table cannot send.

    ``without``: optional parts of the operation that the table leaves out, each with its kind and its name.
    """

    name: str
    operation: str
    toml: str
    without: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An operation without a table, and why."""

    operation: str
    why: str


@dataclass(frozen=True, slots=True)
class Draft:
    """The tables of a document, and the operations that cannot be declared."""

    title: str
    tables: tuple[Drafted, ...]
    left_out: tuple[LeftOut, ...]


def draft_tables(document: Document, *, base_url: str | None = None, only: Sequence[str] = ()) -> Draft:
    """Draft a table for each operation.

    ``base_url`` replaces the document's servers. ``only``: patterns (as in a shell) of tool names or of operations such
    as ``POST /orders*``; without one, all operations are drafted.

    Raises ``SettingInvalid`` if a pattern matches nothing, and ``ToolInvalid`` if HTTP tools cannot be used here.
    """
    http_tools({}, base=Path(), source="OpenAPI")
    operations = list(document.operations())
    names = _names(operations)
    undone = _undos(operations, names)
    tables: list[Drafted] = []
    left: list[LeftOut] = []
    chosen = _chosen(operations, names, only)
    for operation, name in zip(operations, names, strict=True):
        if operation not in chosen:
            continue
        try:
            request = request_of(document, operation, base_url)
            toml = "\n".join(_table(document, operation, name, request, undone.get(operation.word)))
            _check(name, toml)
        except (NotDeclarable, ValueError, SagaError) as error:
            left.append(LeftOut(operation.word, getattr(error, "message", str(error))))
        else:
            tables.append(Drafted(name, operation.word, toml, tuple(request.left_out)))
    return Draft(document.title, tuple(tables), tuple(left))


def _chosen(operations: Sequence[Operation], names: Sequence[str], only: Sequence[str]) -> list[Operation]:
    if not only:
        return list(operations)
    found: list[Operation] = []
    for pattern in only:
        matched = [
            operation
            for operation, name in zip(operations, names, strict=True)
            if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(operation.word, pattern)
        ]
        if not matched:
            raise SettingInvalid(
                f"no operation matches {pattern!r}",
                hint=f"tools: {', '.join(names[:20])}" if names else "the document has no operations",
                pattern=pattern,
            )
        found += matched
    return found


def _names(operations: Sequence[Operation]) -> list[str]:
    """A name for each operation: its ``operationId`` in lower case with underscores, else its method and path."""
    made: list[str] = []
    for operation in operations:
        words = _WORD.findall(str(operation.body.get("operationId") or ""))
        words = words or [operation.method, *_WORD.findall(operation.path)]
        words = [operation.method, *words] if words[:1] and words[0][0].isdigit() else words
        name = base = "_".join(words).lower()[:_NAME_CHARS].strip("_") or operation.method
        number = 2
        while name in made:
            name, number = f"{base[: _NAME_CHARS - 4]}_{number}", number + 1
        made.append(name)
    return made


def _undos(operations: Sequence[Operation], names: Sequence[str]) -> dict[str, str]:
    """What may take an operation back: the DELETE of one item, for the POST to its collection or the PUT of it."""
    found: dict[str, str] = {}
    for operation, name in zip(operations, names, strict=True):
        if operation.method == "delete":
            found.setdefault(f"PUT {operation.path}", name)
            found.setdefault(f"POST {_LAST_PARAM.sub('', operation.path)}", name)
    return found


def _check(name: str, toml: str) -> None:
    """Declare the tool of the table and compile its schemas. Raises ``SagaError`` if it cannot be used."""
    for tool in http_tools(tomllib.loads(toml)["http"], base=Path(), source=f"the draft of {name}"):
        tool.spec()


def _table(document: Document, operation: Operation, name: str, request: Request, undone: str | None) -> Iterator[str]:
    yield f"[http.{key(name)}]"
    yield f"# {printable(operation.word, 110)}"
    if operation.body.get("deprecated") is True:
        yield "# The document says that it is deprecated."
    for note in request.notes:
        yield f"# {printable(note, 110)}"
    for what, which in request.left_out:
        yield f"# Left out: {printable(f'{what}: {which}' if which else what, 100)}"
    text = sentence(operation.body.get("summary") or operation.body.get("description") or "")
    if text:
        yield f"description = {value(text)}"
    yield f"method = {value(operation.method.upper())}"
    yield f"url = {value(request.url)}"
    if accept := _accepted(document, operation):
        request.headers["Accept"] = accept
    for field in ("query", "headers", "form", "styles"):
        pairs: Mapping[str, str] | None = getattr(request, field)
        if pairs:
            yield f"{field} = {value(pairs)}"
    if request.body is not None:
        yield f"body = {value(request.body)}"
    if operation.method not in ("get", "head"):
        yield from _unknown(operation, name, request, undone)
    schema = _returned(document, operation)
    if operation.method not in ("get", "head"):
        failed = failed_field(document, [mapping(each) for _, each in _answers(document, operation)])
        if failed is not None:
            yield f"failed = {value(failed)}   # the document shows errors inside of answers"
    if schema is None:
        yield 'answer = "none"  # the document names no JSON that comes back'
    if request.params:
        yield ""
        yield f"[http.{key(name)}.params]"
        for param, each in request.params.items():
            yield f"{key(param)} = {value(each)}"
    if schema:
        yield ""
        yield f"[http.{key(name)}.output_schema]"
        for word, each in schema.items():
            if word != "properties":
                yield f"{key(word)} = {value(each)}"
        for prop, each in mapping(schema.get("properties")).items():
            yield f"properties.{key(prop)} = {value(each)}"
    yield ""


def _unknown(operation: Operation, name: str, request: Request, undone: str | None) -> Iterator[str]:
    """What a document does not say about a write."""
    if _SEARCHES.search(name) and operation.method == "post":
        yield '# effect = "read"   # if it changes nothing'
    maybe = f"   # {undone} may be it" if undone else "   # the tool that takes it back"
    yield f"# undo = {value(undone or '…')}{maybe}"
    if request.key_header:
        yield f"key = {{ header = {value(request.key_header)} }}   # add ttl_s: how long a key is remembered"
    else:
        yield '# key = { header = "Idempotency-Key" }   # if the server knows keys'
        yield '# probe = "…"   # a tool that finds out whether a call happened'


def _returned(document: Document, operation: Operation) -> dict[str, Any] | None:
    """The schema of the JSON that a success returns: empty if it can be anything, ``None`` if there is none."""
    statuses = [status for status, _ in _successes(document, operation)]
    for _, content in _answers(document, operation):
        return Schemas(document).returned(mapping(content).get("schema"))
    return {} if statuses in ([], ["default"]) else None


def _accepted(document: Document, operation: Operation) -> str:
    """The media type to ask for; empty if it is plain JSON."""
    media = [media.split(";", 1)[0].strip().lower() for media, _ in _answers(document, operation)]
    return "" if not media or "application/json" in media or "*" in media[0] else media[0]


def _answers(document: Document, operation: Operation) -> Iterator[tuple[str, Any]]:
    """The contents in JSON of a success, each with its media type."""
    for _, response in _successes(document, operation):
        for media, content in mapping(response.get("content")).items():
            if is_json(str(media)):
                yield str(media), content


def _successes(document: Document, operation: Operation) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The answers of a call that is done, in the order of their statuses; what stands for all others comes last."""
    responses = {str(status): each for status, each in mapping(operation.body.get("responses")).items()}
    for status in sorted(responses):
        if status == "default" or re.fullmatch(r"2(?:\d\d|XX)", status, re.IGNORECASE):
            yield status, document.resolved(responses[status])
