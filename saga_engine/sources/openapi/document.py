"""An OpenAPI document: read, checked for its version, with its references resolved.

It comes from the network: it may be of any shape, refer to itself, or grow without end when its references are
followed.

Source: the OpenAPI Specification 3.0.4 and 3.1.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

from saga_engine.errors import SettingInvalid

_METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
_SERVED: Final = re.compile(r"3\.[01](?:\.|$)")
#: How many references in a row lead to one object; more go in a circle.
_REFS: Final = 32
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, with the parameters that all methods of the path share."""

    path: str
    method: str
    body: Mapping[str, Any]
    parameters: tuple[Mapping[str, Any], ...]

    @property
    def word(self) -> str:
        """How a message names it."""
        return f"{self.method.upper()} {self.path}"


class Document:
    """A document that has been parsed. ``source``: its file or URL, for messages and relative addresses."""

    def __init__(self, root: Mapping[str, Any], source: str) -> None:
        self._root = root
        self._source = source

    @property
    def title(self) -> str:
        """Its title and version."""
        info = mapping(self._root.get("info"))
        return " ".join(str(info[key]) for key in ("title", "version") if info.get(key)) or "an API without a title"

    def resolved(self, value: Any) -> Mapping[str, Any]:
        """What a value or the reference in it stands for; empty if that is no object, or is not in the document."""
        for _ in range(_REFS):
            if not isinstance(value, Mapping):
                return {}
            ref = value.get("$ref")
            if not isinstance(ref, str):
                return value
            value = self._at(ref)
        return {}

    def operations(self) -> Iterator[Operation]:
        """All operations in the order of the document."""
        for path, item in mapping(self._root.get("paths")).items():
            given = self.resolved(item)
            shared = self._parameters(given)
            for method in _METHODS:
                body = mapping(given.get(method))
                if body:
                    own = self._parameters(body)
                    named = [(each.get("in"), each.get("name")) for each in own]
                    rest = [each for each in shared if (each.get("in"), each.get("name")) not in named]
                    yield Operation(str(path), method, body, (*rest, *own))

    def base_url(self, operation: Operation, given: str | None) -> str:
        """Where the paths begin, without a slash at the end; empty if the document does not say.

        An operation's own servers come before those of the document; ``given`` replaces them all.
        """
        if given is not None:
            return given.rstrip("/")
        servers = operation.body.get("servers") or self._root.get("servers")
        first = mapping(servers[0]) if isinstance(servers, list) and servers else {}
        variables = mapping(first.get("variables"))
        url = _VARIABLE.sub(
            lambda name: str(mapping(variables.get(name[1])).get("default", name[0])), str(first.get("url", "/"))
        )
        url = urljoin(self._source, url) if urlsplit(self._source).scheme in ("http", "https") else url
        return url.rstrip("/") if urlsplit(url).scheme in ("http", "https") else ""

    def security(self, operation: Operation) -> list[dict[str, Mapping[str, Any]]]:
        """The alternatives of an operation, each with its schemes by name; none if it needs no credentials."""
        wanted = operation.body.get("security", self._root.get("security"))
        if not isinstance(wanted, list) or any(each == {} for each in wanted):
            return []
        schemes = mapping(mapping(self._root.get("components")).get("securitySchemes"))
        return [{str(name): self.resolved(schemes.get(name)) for name in mapping(each)} for each in wanted]

    def _parameters(self, of: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        listed = of.get("parameters")
        return tuple(self.resolved(each) for each in listed) if isinstance(listed, list) else ()

    def _at(self, ref: str) -> Any:
        """The place that a reference names (RFC 6901); ``None`` if it is in another document or missing."""
        if not ref.startswith("#/"):
            return None
        at: Any = self._root
        for token in ref[2:].split("/"):
            name = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and name.isdecimal() and int(name) < len(at):
                at = at[int(name)]
            elif isinstance(at, Mapping) and name in at:
                at = at[name]
            else:
                return None
        return at


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def parse(text: str, source: str) -> Document:
    """A document from JSON or YAML.

    Raises ``SettingInvalid`` if it is neither, if it is no OpenAPI document of version 3.0 or 3.1, or if it is YAML and
    PyYAML is not installed.
    """
    root = _loaded(text, source)
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
            hint="versions 3.0 and 3.1 are read",
            source=source,
        )
    return Document(root, source)


def _loaded(text: str, source: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SettingInvalid(f"{source} is no JSON: {error}", source=source) from error
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise SettingInvalid(
            f"{source} is YAML, which needs PyYAML",
            hint="pip install 'saga-engine[openapi]', or give JSON",
            source=source,
        ) from error
    try:
        return yaml.load(text, Loader=_json_loader(yaml))  # noqa: S506 -- made from the safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingInvalid(f"{source} is no YAML: {error}", source=source) from error


def _json_loader(yaml: Any) -> Any:
    """A safe loader that knows the values of JSON only, as OpenAPI asks for: ``NO`` is a text, and so is a date."""

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # PyYAML has no types
        yaml_implicit_resolvers: Final[dict[str, Any]] = {}

    for tag, pattern, first in (
        ("bool", r"^(?:true|false)$", "tf"),
        ("null", r"^(?:null|~|)$", ["n", "~", ""]),
        ("int", r"^-?(?:0|[1-9][0-9]*)$", "-0123456789"),
        ("float", r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?$", "-0123456789"),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))
    return Loader
