"""The files of an OpenAPI document: parsed as JSON or YAML, with references between them made absolute.

A document comes from the network, and so do the references in it: they reach files in the folder of the document and
below it, or URLs of the document's own origin, and nothing else.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

from saga_engine.errors import SettingInvalid

#: Reads the file or URL of an address. Raises ``SettingInvalid``.
Read = Callable[[str], str]

_MAX_FILES: Final = 5_000
_MAX_CHARS: Final = 64_000_000


class Unread(Exception):
    """A reference cannot be followed; the text says why."""


class Files:
    """The document at ``source`` and the files that it refers to, each loaded when a reference first leads to it.

    The document itself has the address ``""``. Another file has its path from the document's folder, or its URL.
    """

    def __init__(self, root: Mapping[str, Any], source: str, read: Read | None) -> None:
        self._source, self._read = source, read
        self._loaded: dict[str, Any] = {"": root}
        self._failed: dict[str, str] = {}
        self._chars = 0
        _absolute(root, self._joined, "")

    def at(self, ref: str) -> Any:
        """The place that an absolute reference names (RFC 6901). Raises ``Unread``."""
        address, _, pointer = ref.partition("#")
        at = self._file(address)
        if pointer and not pointer.startswith("/"):
            raise Unread("a reference by the name of an anchor is not followed")
        for token in pointer.split("/")[1:]:
            name = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and name.isdecimal() and int(name) < len(at):
                at = at[int(name)]
            elif isinstance(at, Mapping) and name in at:
                at = at[name]
            else:
                raise Unread("there is no such place")
        return at

    def _file(self, address: str) -> Any:
        if address in self._loaded:
            return self._loaded[address]
        if address not in self._failed:
            try:
                return self._load(address)
            except Unread as error:
                self._failed[address] = str(error)
        raise Unread(self._failed[address])

    def _load(self, address: str) -> Any:
        if self._read is None:
            raise Unread("only the document itself is read here")
        if len(self._loaded) >= _MAX_FILES:
            raise Unread(f"the document has more than {_MAX_FILES} files")
        try:
            text = self._read(address)
            self._chars += len(text)
            if self._chars > _MAX_CHARS:
                raise Unread(f"the files of the document have more than {_MAX_CHARS} characters")
            value = loaded(text, address)
        except SettingInvalid as error:
            raise Unread(error.message) from error
        self._loaded[address] = value
        _absolute(value, self._joined, address)
        return value

    def _joined(self, base: str, ref: str) -> str:
        """A reference of the file ``base`` in its absolute form."""
        file, mark, pointer = ref.partition("#")
        if not file:
            return f"{base}#{pointer}"
        if _is_url(file) or _is_url(base) or _is_url(self._source):
            file = urljoin(base if _is_url(base) else self._source, file)
            file = "" if file == self._source else file
        else:
            file = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(file)))
            file = "" if file == Path(self._source).name else file
        return f"{file}{mark or '#'}{pointer}"


def _is_url(text: str) -> bool:
    return urlsplit(text).scheme in ("http", "https")


def _absolute(root: Any, joined: Callable[[str, str], str], address: str) -> None:
    """Make each reference in a file absolute, in place; what YAML's aliases share is visited once."""
    open_, seen = [root], set()
    while open_:
        node = open_.pop()
        if id(node) in seen or not isinstance(node, dict | list):
            continue
        seen.add(id(node))
        if isinstance(node, list):
            open_ += node
            continue
        if isinstance(node.get("$ref"), str):
            node["$ref"] = joined(address, node["$ref"])
        open_ += node.values()


def beside(source: str, fetch: Read) -> Read:
    """Reads what a document refers to: files in its folder and below, or with ``fetch`` URLs of its own origin.

    The function that is returned raises ``SettingInvalid`` for every other address, and for what cannot be read.
    """
    own = urlsplit(source)

    def read(address: str) -> str:
        if _is_url(address):
            there = urlsplit(address)
            if (there.scheme, there.netloc) != (own.scheme, own.netloc):
                raise SettingInvalid("it is on another host than the document, and is not fetched", source=address)
            return fetch(address)
        folder = Path(source).parent.resolve()
        file = (folder / address).resolve()
        if source == "-" or not file.is_relative_to(folder):
            raise SettingInvalid("it lies outside of the document's folder, and is not read", source=address)
        try:
            return file.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise SettingInvalid(f"it cannot be read: {error.strerror or error}", source=address) from error
        except UnicodeDecodeError as error:
            raise SettingInvalid(f"it is no UTF-8: {error.reason}", source=address) from error

    return read


def loaded(text: str, source: str) -> Any:
    """A text of JSON or YAML as a value. Raises ``SettingInvalid`` if it is neither, or if PyYAML is not installed."""
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
    """A safe loader that knows the values of JSON only, as OpenAPI asks for: ``NO`` is a text, and so is a date.

    Beside them it knows the merge key ``<<``, which documents written by hand use.
    """

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # PyYAML has no types
        yaml_implicit_resolvers: Final[dict[str, Any]] = {}

    for tag, pattern, first in (
        ("merge", r"^<<$", "<"),
        ("bool", r"^(?:true|false)$", "tf"),
        ("null", r"^(?:null|~|)$", ["n", "~", ""]),
        ("int", r"^-?(?:0|[1-9][0-9]*)$", "-0123456789"),
        ("float", r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?$", "-0123456789"),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))
    return Loader
