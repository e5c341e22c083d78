"""An OpenAPI document: checked for its version, with its references resolved.

It comes from the network: it may be of any shape, refer to itself, or grow without end when its references are
followed.

Source: the OpenAPI Specification 3.0.4 and 3.1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from saga_engine.errors import SettingInvalid
from saga_engine.plan.values import printable
from saga_engine.sources.openapi.files import Files, Read, Unread, loaded

_METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
_SERVED: Final = re.compile(r"3\.[012](?:\.|$)")
#: How many references in a row lead to one object; more go in a circle.
_REFS: Final = 32
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, with the parameters that all methods of the path share.

    ``servers``: those of the operation, else of its path, else of the document. ``unread``: why a part without which it
    cannot be called is not known; empty if all of it is.
    """

    path: str
    method: str
    body: Mapping[str, Any]
    parameters: tuple[Mapping[str, Any], ...]
    servers: tuple[Any, ...] = ()
    unread: str = ""

    @property
    def word(self) -> str:
        """How a message names it."""
        return f"{self.method.upper()} {self.path}"


class Document:
    """A document that has been parsed. ``source``: its file or URL, for messages and relative addresses."""

    def __init__(self, root: Mapping[str, Any], source: str, read: Read | None = None) -> None:
        self._root = root
        self._source = source
        self._files = Files(root, source, read)
        #: Whether words beside a ``$ref`` count (3.1), or are ignored (3.0).
        self.siblings_count = not str(root.get("openapi")).startswith("3.0")

    @property
    def title(self) -> str:
        """Its title and version."""
        info = mapping(self._root.get("info"))
        return " ".join(str(info[key]) for key in ("title", "version") if info.get(key)) or "an API without a title"

    def resolved(self, value: Any) -> Mapping[str, Any]:
        """What a value or the reference in it stands for; empty if that is no object, or cannot be read."""
        return self._followed(value)[0]

    def unread(self, value: Any) -> str:
        """Why the reference in a value leads to no object; empty if it does, or if there is none."""
        return self._followed(value)[1]

    def _followed(self, value: Any) -> tuple[Mapping[str, Any], str]:
        said = ""
        for _ in range(_REFS):
            if not isinstance(value, Mapping):
                return {}, said and f"{said}, which is no object"
            ref = value.get("$ref")
            if not isinstance(ref, str):
                return value, ""
            said = f"it refers to {printable(ref.removeprefix('#') or ref, 100)}"
            try:
                value = self._files.at(ref)
            except Unread as error:
                return {}, f"{said}: {error}"
        return {}, f"{said}, which refers to itself"

    def operations(self) -> Iterator[Operation]:
        """All operations in the order of the document; one whose path or body cannot be read says so."""
        for path, item in mapping(self._root.get("paths")).items():
            given, unread = self._followed(item)
            if unread:
                yield Operation(str(path), "any", {}, (), (), unread)
            shared = self._parameters(given)
            for method in _METHODS:
                body, unread = self._followed(given.get(method))
                if body or unread:
                    own = self._parameters(body)
                    named = [(each.get("in"), each.get("name")) for each in own]
                    rest = [each for each in shared if (each.get("in"), each.get("name")) not in named]
                    yield Operation(str(path), method, body, (*rest, *own), self._servers(body, given), unread)

    def _servers(self, *holders: Mapping[str, Any]) -> tuple[Any, ...]:
        for holder in (*holders, self._root):
            servers = holder.get("servers")
            if isinstance(servers, list) and servers:
                return tuple(servers)
        return ()

    def base_url(self, operation: Operation, given: str | None) -> str:
        """Where the paths begin, without a slash at the end; empty if the document does not say.

        The servers of an operation come before those of its path, and these before those of the document; ``given``
        replaces them all.
        """
        return given.rstrip("/") if given is not None else self._address(operation.servers)

    def elsewhere(self, operation: Operation) -> str:
        """The host that an operation is served by, if it is not that of the document."""
        here, there = (urlsplit(self._address(servers)).netloc for servers in (self._servers(), operation.servers))
        return there if here and there != here else ""

    def _address(self, servers: tuple[Any, ...]) -> str:
        """The first server whose address is whole; one over TLS, if there is one of the same host."""
        found = [url for each in servers or ({},) if (url := self._url(mapping(each)))]
        host = urlsplit(found[0]).hostname if found else None
        return next(
            (url for url in found if urlsplit(url).scheme == "https" and urlsplit(url).hostname == host),
            found[0] if found else "",
        )

    def _url(self, server: Mapping[str, Any]) -> str:
        variables = {**self._shared_variables(), **mapping(server.get("variables"))}

        def value(found: re.Match[str]) -> str:
            variable = mapping(variables.get(found[1]))
            listed = variable.get("enum")
            first = listed[0] if isinstance(listed, list) and listed else found[0]
            return str(variable.get("default", first))

        url = _VARIABLE.sub(value, str(server.get("url", "/")))
        try:
            url = urljoin(self._source, url) if urlsplit(self._source).scheme in ("http", "https") else url
            split = urlsplit(url)
            return url.rstrip("/") if split.scheme in ("http", "https") and split.hostname else ""
        except ValueError:
            return ""

    def _shared_variables(self) -> Mapping[str, Any]:
        """The variables of the document's first server: an operation's own server may use them without saying so."""
        return mapping(mapping(next(iter(self._servers()), None)).get("variables"))

    def security(self, operation: Operation) -> list[dict[str, Mapping[str, Any]]]:
        """The alternatives of an operation, each with its schemes by name; none if it needs no credentials."""
        wanted = operation.body.get("security", self._root.get("security"))
        if not isinstance(wanted, list) or any(each == {} for each in wanted):
            return []
        schemes = mapping(mapping(self._root.get("components")).get("securitySchemes"))
        return [{str(name): self.resolved(schemes.get(name)) for name in mapping(each)} for each in wanted]

    def _parameters(self, of: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        listed = of.get("parameters")
        return tuple(self._parameter(each) for each in listed) if isinstance(listed, list) else ()

    def _parameter(self, each: Any) -> Mapping[str, Any]:
        """A parameter, or in its place why it is not known: its request would be another without it."""
        found, unread = self._followed(each)
        return {"unread": unread} if unread else found


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def parse(text: str, source: str, read: Read | None = None) -> Document:
    """A document from JSON or YAML. ``read`` reads the other files that it refers to; without it none is read.

    Raises ``SettingInvalid`` if it is neither, if it is no OpenAPI document of version 3.0 to 3.2, or if it is YAML and
    PyYAML is not installed.
    """
    root = loaded(text, source)
    if not isinstance(root, Mapping):
        raise SettingInvalid(f"{source} is no OpenAPI document: it is no object", source=source)
    if "swagger" in root:
        raise SettingInvalid(
            f"{source} is a Swagger document of version {root['swagger']}",
            hint="convert it to OpenAPI 3: most API editors and gateways export it",
            source=source,
        )
    version = root.get("openapi")
    if not isinstance(version, str) or not _SERVED.match(version):
        raise SettingInvalid(
            f"{source} is no OpenAPI document that can be read: its field openapi is {version!r}",
            hint="versions 3.0, 3.1 and 3.2 are read",
            source=source,
        )
    return Document(root, source, read)
