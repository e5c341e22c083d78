"""Hosts as a policy sees them: one spelling for each, and only addresses that may be called.

Programs disagree about the host of an odd URL (Orange Tsai, *A New Era of SSRF*, 2017). A text that two parsers could
understand differently has no host here. A name is checked by the addresses that it resolves to, so a public name of an
internal address is refused like the address itself.

Sources: RFC 3986 section 3.2, RFC 6761, and the IANA special-purpose address registries (RFC 6890).
"""

from __future__ import annotations

import asyncio
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Finds the addresses of a name. Raises ``OSError`` if there are none (``socket.gaierror`` is one).
Resolver = Callable[[str, int | None], Awaitable[Sequence[str]]]

MAX_URL_CHARS: Final = 8192
MAX_HOST_CHARS: Final = 253

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}")
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[0-9]{1,5}")

#: What ``ipaddress`` calls an address that is not public, the first that fits.
_KINDS: Final = ("unspecified", "loopback", "link_local", "multicast", "reserved", "private")
#: What ``is_global`` lacks: networks that no kind covers, or that some versions of Python call global.
_NOT_GLOBAL: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(network), what)
    for network, what in (
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("192.0.0.0/24", "reserved"),
        ("192.88.99.0/24", "a relay of 6to4"),
        # In the public ranges, but reachable only inside of a cloud, where they serve keys and settings.
        ("168.63.129.16/32", "the inside of Azure"),
        ("161.26.0.0/16", "the inside of IBM Cloud"),
        ("166.8.0.0/14", "the inside of IBM Cloud"),
        ("2001::/23", "reserved"),
        ("3fff::/20", "for documentation"),
    )
)
#: All IPv6 addresses that are allocated to the public (RFC 4291 section 2.4); all others are refused without a list.
_UNICAST: Final = IPv6Network("2000::/3")
_6TO4: Final = IPv6Network("2002::/16")
_NAT64: Final = IPv6Network("64:ff9b::/96")
#: The upper half of the interface identifier, without the bit that tells whether it is unique.
_ISATAP: Final = 0x0000_5EFE


class HostRefused(ValueError):
    """A host may not be called, or it is unknown whether it may.

    ``unavailable``: its name does not resolve now; that says nothing against it, and it may resolve later.
    """

    def __init__(self, message: str, *, unavailable: bool = False) -> None:
        super().__init__(message)
        self.unavailable = unavailable


# --- names ---------------------------------------------------------------------------------------------------------


def host_of(text: str) -> str:
    """The host that a URL or a bare ``host[:port]`` names, in its one spelling.

    Names are in lower case, without a dot at the end, in their IDNA form. Addresses are written as ``ipaddress`` writes
    them, whatever encoding they came in (``2130706433``, ``0x7f.1``, ``[::ffff:7f00:1]``), without brackets and zone.

    Raises ``ValueError``, with a reason that does not repeat the text, for everything that URL parsers are known to
    disagree about: user information, white space, control characters, backslashes, escapes in the host, letters that
    IDNA changes.
    """
    if not isinstance(text, str):
        raise ValueError("it is no text")  # noqa: TRY004 - one error for what cannot be read
    if not text or len(text) > MAX_URL_CHARS:
        raise ValueError("it is empty" if not text else f"it is longer than {MAX_URL_CHARS} characters")
    if any(char.isspace() or unicodedata.category(char)[0] in "CZ" for char in text):
        raise ValueError("it has white space or control characters")
    if "\\" in text:
        raise ValueError("it has a backslash")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return _canonical(_bare(text))
    authority = text[scheme.end() :].partition("/")[0]
    # Also after '?' and '#': some parsers end the authority at the slash only.
    if "@" in authority:
        raise ValueError("it has user information, or an '@' before its path")
    return _canonical(_without_port(re.split(r"[?#]", authority, maxsplit=1)[0]))


def is_address(host: str) -> bool:
    """Whether a host, in its one spelling, is an address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _bare(text: str) -> str:
    if any(char in text for char in "/?#@"):
        raise ValueError("it is neither a URL with a scheme nor a bare host")
    if text.count(":") > 1 and not text.startswith("["):
        return f"[{text}]"
    return _without_port(text)


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        host, bracket, port = authority.partition("]")
        host += bracket
    else:
        host, colon, port = authority.partition(":")
        port = colon + port
    if port and not (port[0] == ":" and _PORT.fullmatch(port[1:]) and int(port[1:]) < 65536):
        raise ValueError("its port is no number")
    if not host:
        raise ValueError("it has no host")
    return host


def _canonical(host: str) -> str:
    if host.startswith("["):
        return _literal_6(host)
    if "%" in host:
        raise ValueError("its host has an escape ('%')")
    name = host.lower().removesuffix(".") if host.isascii() else _idna(host)
    labels = name.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        try:
            # The oldest parser of addresses accepts all encodings that others may accept.
            return str(IPv4Address(socket.inet_aton(name)))
        except OSError as error:
            raise ValueError("it ends in a number and is no address") from error
    if len(name) > MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("its host is no name")
    return name


def _idna(host: str) -> str:
    """The ASCII form of a name, if it represents this very name and no other."""
    if len(host) > MAX_HOST_CHARS:  # the codec is slow for long names
        raise ValueError("its host is no name")
    plain = unicodedata.normalize("NFC", host).lower().removesuffix(".")
    try:
        name = plain.encode("idna").decode("ascii")
        same = name.encode("ascii").decode("idna") == plain
    except UnicodeError as error:
        raise ValueError("its host has letters that no name can have") from error
    if not same:
        raise ValueError("its host has letters that stand for others")
    return name


def _literal_6(host: str) -> str:
    try:
        address = IPv6Address(host[1:-1] if host.endswith("]") else "")
    except ValueError as error:
        raise ValueError("its host is no IPv6 address") from error
    if address.scope_id is not None and not address.is_link_local:
        raise ValueError("its address has a zone, which only link-local addresses have")
    return str(_plain(address))


def _plain(address: Address) -> Address:
    """The address without its zone; an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) as IPv4."""
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))


# --- addresses -----------------------------------------------------------------------------------------------------


async def _getaddrinfo(host: str, port: int | None) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Addresses:
    """Which addresses may be called: the public ones, and those in ``allow_private`` (addresses or networks).

    ``resolver`` replaces the system's. Raises ``ValueError`` for anything but an address or a network.
    """

    __slots__ = ("_allowed", "_resolver")

    def __init__(self, allow_private: Sequence[str], *, resolver: Resolver | None = None) -> None:
        self._allowed = tuple(_network(text) for text in allow_private)
        self._resolver = resolver or _getaddrinfo

    def refused(self, address: str | Address) -> str | None:
        """Why an address may not be called; None if it may."""
        try:
            found = _plain(ip_address(address))
        except ValueError:
            return "it is no address"
        if any(found.version == network.version and found in network for network in self._allowed):
            return None
        return _not_public(found)

    async def resolve(self, host: str, port: int | None = None) -> list[str]:
        """All addresses of a host, each of which may be called; in the resolver's order, each once.

        Raises ``HostRefused`` if the host is invalid or one of its addresses is refused, and with ``unavailable`` if
        its name does not resolve.
        """
        try:
            name = host_of(host)
        except ValueError as error:
            raise HostRefused(f"the host cannot be trusted: {error}") from error
        if _is_address(name):
            found: Sequence[str] = [name]
        else:
            try:
                found = await self._resolver(name, port)
            except (OSError, UnicodeError) as error:
                raise HostRefused(f"the name {name} does not resolve: {error}", unavailable=True) from error
            if not found:
                raise HostRefused(f"the name {name} has no address", unavailable=True)
        for address in found:
            reason = self.refused(address)
            if reason is not None:
                which = f"the address {name}" if address == name else f"the address {address} of {name}"
                raise HostRefused(f"{which} is refused: {reason}")
        return list(dict.fromkeys(found))


def _network(text: str) -> Network:
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no address and no network")  # noqa: TRY004 - one error for what cannot be read
    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.prefixlen == 128:
        plain = _plain(network.network_address)
        return ip_network(plain)
    return network


def common(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The intersection of two lists of addresses and networks. Raises ``ValueError``."""
    pairs = [(_network(one), _network(other)) for one in first for other in second]
    found = [
        str(max(one, other, key=lambda network: network.prefixlen))
        for one, other in pairs
        if one.version == other.version and one.overlaps(other)
    ]
    return tuple(dict.fromkeys(found))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _not_public(address: Address) -> str | None:
    """Why an address is not public; None if it is."""
    if isinstance(address, IPv6Address):
        # The address that a translator or a tunnel unwraps counts, not the wrapping one.
        inner = _wrapped(address)
        if inner is not None:
            reason = _not_public(inner)
            return None if reason is None else f"it stands for {inner}, which is not public ({reason})"
    for network, what in _NOT_GLOBAL:
        if address.version == network.version and address in network:
            return f"it is not public ({what})"
    if address.is_global and not address.is_multicast and (address.version == 4 or address in _UNICAST):
        return None
    kind = next((kind for kind in _KINDS if getattr(address, f"is_{kind}")), "reserved")
    return f"it is not public ({kind.replace('_', '-')})"


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address at which this address ends: 6to4 (RFC 3056), NAT64 (RFC 6052), ISATAP (RFC 5214)."""
    if address in _6TO4:
        return address.sixtofour
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if int(address) >> 32 & 0xFDFF_FFFF == _ISATAP:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


# --- patterns ------------------------------------------------------------------------------------------------------


class HostPattern:
    """One entry of a rule's list of hosts: a glob (``*.example.com``), an address, or a network (``203.0.113.0/24``).

    ``*`` stands for any characters, dots included, and ``?`` for one. An address or a network matches the addresses
    that a host resolves to, whatever its name. Raises ``ValueError``.
    """

    __slots__ = ("_glob", "_network")

    def __init__(self, text: str) -> None:
        self._network: Network | None = None
        self._glob: re.Pattern[str] | None = None
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is no host")  # noqa: TRY004
        try:
            self._network = _network(text.removeprefix("[").removesuffix("]"))
        except ValueError:
            self._glob = re.compile(_glob(text))

    @property
    def by_address(self) -> bool:
        """Whether it matches the addresses of a host, and not its name."""
        return self._network is not None

    def matches(self, host: str, addresses: Sequence[str]) -> bool | str:
        """Whether the pattern matches the host; a text says why that is uncertain."""
        if self._glob is not None:
            return self._glob.fullmatch(host) is not None
        network = self._network
        assert network is not None
        plain = [_plain(ip_address(address)) for address in addresses]
        inside = [address.version == network.version and address in network for address in plain]
        if any(inside) and not all(inside):
            return "some of the addresses of the host match and others do not"
        return any(inside)


def _glob(text: str) -> str:
    labels: list[str] = []
    for label in text.lower().removesuffix(".").split("."):
        name = label if label.isascii() else _idna(label)
        if not re.fullmatch(r"[a-z0-9_*?-]{1,63}", name):
            raise ValueError(f"{text!r} is no host, no glob of hosts, no address and no network")
        labels.append(re.sub(r"\*+", "*", name))
    if _NUMERIC.fullmatch(labels[-1]):
        raise ValueError(f"{text!r} ends in a number and is no address")
    joined = r"\.".join(labels)
    return joined.replace("-", r"\-").replace("*", ".*").replace("?", ".")
