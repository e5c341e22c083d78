"""The settings of an OpenID Connect issuer: the table ``[server.oidc]``."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from saga_engine.errors import SettingInvalid
from saga_engine.server.identity import SCOPES
from saga_engine.settings import TableReader

#: Signed with a private key. Those with a shared secret would make each verifier a signer.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_SCOPES: Final[Mapping[str, str]] = {f"saga:{name}": name for name in SCOPES}


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Whose tokens are accepted, and what their claims mean.

    ``audience``: this server, as the issuer names it. ``leeway_s``: by how much clocks may differ. ``who_claim`` is
    recorded as ``by``. ``scopes``: the server's scope for each value of ``scope_claim`` (a list, or words in a text).
    ``tenant_claim``: names the tenant; a token without it is refused.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway_s: float = 60.0
    who_claim: str = "sub"
    scope_claim: str = "scope"
    scopes: Mapping[str, str] = field(default_factory=lambda: _SCOPES)
    tenant_claim: str = ""

    def __post_init__(self) -> None:
        if not self.audience:
            raise _wrong("audience is missing", "the name of this server at the issuer: tokens for others are refused")
        if not self.trusts(self.issuer):
            raise _wrong(f"issuer cannot be {self.issuer!r}", "an https address; http only on the loopback")
        if wrong := [each for each in self.algorithms if each not in ALGORITHMS] or not self.algorithms:
            named = wrong[0] if isinstance(wrong, list) else "empty"
            raise _wrong(f"algorithms cannot have {named!r}", ", ".join(ALGORITHMS))
        if not 0 <= self.leeway_s <= 600:
            raise _wrong(f"leeway_s must be 0 to 600, not {self.leeway_s!r}", "the difference of two clocks")
        for value, scope in self.scopes.items():
            if scope not in SCOPES:
                raise _wrong(f"scopes.{value} cannot be {scope!r}", ", ".join(SCOPES))

    @staticmethod
    def trusts(address: str) -> bool:
        """Whether nobody on the way can change what comes from there."""
        parts = urlsplit(address)
        if parts.scheme == "https" and parts.hostname:
            return True
        try:
            return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return parts.scheme == "http" and parts.hostname == "localhost"


def oidc_settings(body: Any, source: str) -> OidcSettings:
    """The settings of a table. Raises ``SettingInvalid``."""
    reader = TableReader(f"[server.oidc] in {source}", body)
    given: dict[str, Any] = {}
    for name in ("issuer", "audience"):
        given[name] = reader.text(name)
    for name, default in (("who_claim", "sub"), ("scope_claim", "scope"), ("tenant_claim", "")):
        given[name] = reader.text(name, default)
    algorithms = reader.any("algorithms", ["RS256", "ES256"])
    if not isinstance(algorithms, list) or not all(isinstance(each, str) for each in algorithms):
        reader.refuse("algorithms", "must be a list of texts")
    leeway_s = reader.any("leeway_s", 60)
    if isinstance(leeway_s, bool) or not isinstance(leeway_s, int | float):
        reader.refuse("leeway_s", "must be a number")
    scopes = reader.any("scopes", dict(_SCOPES))
    if not isinstance(scopes, Mapping) or not all(isinstance(each, str) for each in scopes.values()):
        reader.refuse("scopes", "must be a table", '"saga:read" = "read"')
    reader.end()
    return OidcSettings(**given, algorithms=tuple(algorithms), leeway_s=leeway_s, scopes=dict(scopes))


def _wrong(what: str, hint: str) -> SettingInvalid:
    return SettingInvalid(f"[server.oidc]: {what}", hint=hint)
