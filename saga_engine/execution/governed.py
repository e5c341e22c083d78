"""What rules a process holds its sagas to, as its lease records them: digests, and the files that they came from.

From a digest no rule can be read. Processes of one namespace whose digests differ hold the same saga to different rules
by turns, so each place that shows processes names them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

#: What is compared, in the order in which it is shown.
PARTS: Final = ("policy", "limits", "secrets", "quota")
_CHARS: Final = 12
_FILES: Final = 4
_PATH_CHARS: Final = 400


class Governed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The digests of what holds in a process; empty: it has no such rules of its own, and is not compared.

    ``policy``, ``limits`` and ``secrets`` (names that may be used, and no values) are those of every process. ``quota``
    is what a server says of its namespace. ``files``: the paths of the files of settings that were read.
    """

    policy: str = ""
    limits: str = ""
    secrets: str = ""
    quota: str = ""
    files: tuple[str, ...] = ()

    def note(self) -> bytes:
        """As it stands in a lease."""
        return msgspec.json.encode(self)

    def body(self, *, files: bool = True) -> dict[str, Any]:
        """As plain JSON; ``files``: with the paths."""
        found = {part: getattr(self, part) for part in PARTS if getattr(self, part)}
        return found | ({"files": list(self.files)} if files else {})


class Difference(NamedTuple):
    """One part that differs. ``groups``: the digests, that of most processes first, and the owners that have it."""

    part: str
    groups: Sequence[tuple[str, Sequence[str]]]

    def body(self, found: Mapping[str, Governed], *, files: bool = True) -> dict[str, Any]:
        """As plain JSON; ``files``: with the paths that each process read."""
        groups = []
        for value, owners in self.groups:
            named = [{"owner": owner, **({"files": list(found[owner].files)} if files else {})} for owner in owners]
            groups.append({"digest": value, "processes": named})
        return {"part": self.part, "groups": groups}


def governed(policy: Any, limits: Any, secrets: Any, files: Sequence[str]) -> Governed:
    """The record of what holds; each is any value that says all that matters, and says it alike in every process."""
    return Governed(
        policy=digest_of(policy),
        limits=digest_of(limits),
        secrets=digest_of(secrets),
        files=tuple(path[-_PATH_CHARS:] for path in files[:_FILES]),
    )


def digest_of(rules: Any) -> str:
    """A short digest: the same for the same rules, in whatever process."""
    data = msgspec.json.encode(rules, enc_hook=repr, order="deterministic")
    return hashlib.sha256(data).hexdigest()[:_CHARS]


def found_in(notes: Mapping[str, bytes], owners: Mapping[str, int]) -> dict[str, Governed]:
    """What the processes whose lease holds have recorded; a note that cannot be read says nothing."""
    found: dict[str, Governed] = {}
    for owner, note in sorted(notes.items()):
        if owners.get(owner, 0) <= 0 or not note:
            continue
        try:
            found[owner] = msgspec.json.decode(note, type=Governed)
        except msgspec.MsgspecError:
            continue  # of another version: it is not compared
    return found


def differences(found: Mapping[str, Governed]) -> list[Difference]:
    """The parts in which these processes differ."""
    differing: list[Difference] = []
    for part in PARTS:
        groups: dict[str, list[str]] = {}
        for owner, said in found.items():
            if value := getattr(said, part):
                groups.setdefault(value, []).append(owner)
        if len(groups) > 1:
            ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))
            differing.append(Difference(part, ordered))
    return differing
