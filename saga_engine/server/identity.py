"""Who a request comes from, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from saga_engine.errors import Forbidden, SettingInvalid

#: ``read`` shows; ``submit`` starts sagas and sends events; ``resolve`` answers, cancels, undoes and resumes; ``admin``
#: may do all of it, and changes templates, schedules and stops.
SCOPES: Final = ("read", "submit", "resolve", "admin")


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller. ``who`` is recorded as ``by``; ``tenant`` names its namespace (empty: the server's own).

    ``token_id`` is that of its token, by which it is limited; ``via`` says how it was recognized: ``token``,
    ``cookie``, ``oidc``, or ``open`` (the server asks nobody). ``expires_ms``: when an issuer's token ends (Unix ms).
    ``browser``: the value of the cookie of one that is signed in.
    """

    who: str
    scopes: frozenset[str]
    tenant: str = ""
    token_id: str = ""
    via: str = "token"
    expires_ms: int = 0
    browser: str = ""

    def may(self, scope: str) -> bool:
        """Whether it has a scope; ``admin`` has all."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: str) -> None:
        """Raises ``Forbidden``."""
        if not self.may(scope):
            raise Forbidden(
                f"this needs the scope '{scope}'",
                hint=f"the token of {self.who} has: {', '.join(sorted(self.scopes)) or 'no scope'}",
                scope=scope,
            )


#: Of a server without tokens, which listens on the loopback only.
ANYBODY: Final = Identity("local", frozenset({"admin"}), via="open")
#: Of a request that says who it is by a signature of its own.
NOBODY: Final = Identity("", frozenset(), via="signature")


def check_scopes(scopes: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The scopes in their order, each once. Raises ``SettingInvalid``."""
    unknown = [each for each in scopes if each not in SCOPES]
    if unknown or not scopes:
        raise SettingInvalid(
            f"{unknown[0]!r} is no scope" if unknown else "a token needs a scope", hint=", ".join(SCOPES)
        )
    return tuple(each for each in SCOPES if each in scopes)
