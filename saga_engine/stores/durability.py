"""The durability of a server, read from the server itself, and whether it is sufficient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from saga_engine.errors import DurabilityInsufficient
from saga_engine.ports import StorePromise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Finding = tuple[str, str, str]

#: The settings that determine the durability.
SETTINGS: Final = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy")

_OLDEST: Final = (6, 2)
#: The first version with WAITAOF. Valkey reports 7.2 here, too.
_CONFIRMING: Final = (7, 2)
_TESTED: Final = (7, 0)
_UNREADABLE_HINT: Final = (
    'ask the operator for append-only file, fsync "always" and no eviction; to go on without proof, '
    'say durability = "relaxed"'
)

_AWAY: Final = "its sagas wait until it is back; it is verified before anything is written to it"


class ServerFacts(NamedTuple):
    """The facts: ``INFO`` by field, and ``CONFIG GET`` by name (None: the server does not show its settings)."""

    info: Mapping[str, str]
    settings: Mapping[str, str] | None
    open_door: bool = False  # reached over TCP, beyond this machine, with no password
    name: str = ""  # which of several servers it is


def verify(
    url: str,
    servers: Sequence[ServerFacts],
    *,
    replicas: int = 0,
    unconfirmed: str = "",
    away: Mapping[str, str] | None = None,
) -> StorePromise:
    """The durability that follows from the facts. Errors among the findings lower the level to ``relaxed``.

    ``servers``: the one server, or every primary of a cluster that answers: the weakest determines the level.
    ``replicas``: how many must have each write on disk; ``unconfirmed`` is why a test write did not reach them.
    ``away``: why the other primaries do not answer.
    """
    findings: list[Finding] = []
    for facts in servers:
        found = [*_disk(facts), *_memory(facts), *_role(facts), *_replicas(facts, replicas), *_rest(facts)]
        where = f"{facts.name}: " if facts.name else ""
        findings += [(severity, where + text, hint) for severity, text, hint in found]
    if unconfirmed:
        text = f"replicas do not confirm what is written: {unconfirmed}"
        findings.append(("error", text, "on every replica: CONFIG SET appendonly yes, CONFIG SET appendfsync always"))
    level = "relaxed" if any(severity == "error" for severity, _, _ in findings) else "fsync"
    if level == "fsync":
        findings.insert(0, ("ok", "acknowledged means on disk: append-only file, fsync always, no eviction", ""))
        if replicas:
            level = f"replicated:{replicas}"
            findings.insert(1, ("ok", f"and on the disks of {replicas} replica{'s'[: replicas - 1]}, by WAITAOF", ""))
    findings += [
        ("warning", f"{name} does not answer, so it is not verified: {why}", _AWAY)
        for name, why in (away or {}).items()
    ]
    names = dict.fromkeys(_server(facts.info) for facts in servers)
    return StorePromise(url, ", ".join(names), level, tuple(dict.fromkeys(findings)))


def demand(promise: StorePromise) -> None:
    """Refuse a server with less than ``fsync``: raises ``DurabilityInsufficient`` with all that is missing."""
    errors = [finding for finding in promise.findings if finding[0] == "error"]
    if not errors:
        return
    hints = dict.fromkeys(hint for _, _, hint in errors)
    raise DurabilityInsufficient(
        f"the store at {promise.url} keeps less than it is asked to: " + "; ".join(text for _, text, _ in errors),
        hint="; ".join(hints)
        + ('; or accept less with durability = "relaxed"' if _UNREADABLE_HINT not in hints else ""),
        url=promise.url,
        server=promise.server,
    )


def demand_kept(url: str, facts: ServerFacts) -> None:
    """Like ``demand``, for one server's disk and memory only."""
    findings = [*_disk(facts), *_memory(facts)]
    demand(StorePromise(url, _server(facts.info), "", findings))


def _server(info: Mapping[str, str]) -> str:
    if info.get("server_name") == "valkey":
        return f"Valkey {info.get('valkey_version', '?')}"
    return f"Redis {info.get('redis_version', '?')}"


def _disk(facts: ServerFacts) -> list[Finding]:
    settings = facts.settings
    if settings is None:
        return [("error", "its durability cannot be verified, because CONFIG GET is not allowed", _UNREADABLE_HINT)]
    findings: list[Finding] = []
    if settings.get("appendonly") != "yes":
        findings.append(("error", "the append-only file is off", "on the server: CONFIG SET appendonly yes"))
    if settings.get("appendfsync") != "always":
        found = settings.get("appendfsync", "unknown")
        findings.append(("error", f"appendfsync is {found}", "on the server: CONFIG SET appendfsync always"))
    if settings.get("no-appendfsync-on-rewrite", "no") != "no":
        text = "nothing is synced while the append-only file is rewritten"
        findings.append(("error", text, "on the server: CONFIG SET no-appendfsync-on-rewrite no"))
    if facts.info.get("aof_last_write_status", "ok") != "ok":
        findings.append(("error", "the last write to the append-only file failed", "see the server's log; make room"))
    return findings


def _memory(facts: ServerFacts) -> list[Finding]:
    if facts.settings is None:
        return []
    limit = int(facts.settings.get("maxmemory") or 0)
    if limit == 0:
        return []
    policy = facts.settings.get("maxmemory-policy", "unknown")
    if policy != "noeviction":
        text = f"the server drops keys when it is full (maxmemory-policy {policy})"
        return [("error", text, "on the server: CONFIG SET maxmemory-policy noeviction")]
    used = int(facts.info.get("used_memory", "0"))
    if used > 0.8 * limit:
        text = f"{100 * used // limit} % of maxmemory is used; at 100 % every write is refused"
        return [("warning", text, "raise maxmemory, or keep finished sagas for a shorter time")]
    return []


def _role(facts: ServerFacts) -> list[Finding]:
    if facts.info.get("cluster_enabled") == "1" and not facts.name:
        return [("error", "the server is one node of a cluster", "write redis+cluster:// in its address")]
    if facts.info.get("role", "master") == "master":
        return []
    return [("error", "the server is a replica", "give the address of the primary")]


def _replicas(facts: ServerFacts, wanted: int) -> list[Finding]:
    if wanted == 0:
        return []
    if not confirms(facts):
        text = "it cannot say what its replicas have on disk: it has no WAITAOF"
        return [("error", text, "use Valkey, or Redis 7.2 or newer")]
    attached = sum(
        name.startswith("slave") and "state=online" in value.split(",") for name, value in facts.info.items()
    )
    if "role" in facts.info and attached < wanted:
        return [("error", f"{attached} of {wanted} replicas are attached", "attach more, or ask for fewer")]
    return []


def confirms(facts: ServerFacts) -> bool:
    """Whether the server has WAITAOF; a server without a version is assumed to."""
    numbers = _version(facts)
    return not numbers or numbers >= _CONFIRMING


def _version(facts: ServerFacts) -> tuple[int, ...]:
    text = facts.info.get("redis_version", "")
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _rest(facts: ServerFacts) -> list[Finding]:
    findings: list[Finding] = []
    text = facts.info.get("redis_version", "")
    numbers = _version(facts)
    if numbers and numbers < _OLDEST:
        findings.append(("error", f"version {text} is too old", "use Redis 7.0 or newer, or Valkey"))
    elif numbers and numbers < _TESTED:
        findings.append(("warning", f"version {text} is not tested", "use Redis 7.0 or newer, or Valkey"))
    if facts.open_door:
        text = "anybody who reaches its port can read and change journals: it asks for no password"
        findings.append(("warning", text, "set requirepass or an ACL user, and rediss:// between machines"))
    return findings
