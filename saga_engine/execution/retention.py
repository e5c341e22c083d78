"""How long sagas that have ended are kept: the operator's rules, ``[retention]``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from saga_engine.core.redaction import Redaction
from saga_engine.core.states import COMPENSATED, COMPLETED, SAGA_FINAL, WAIVED
from saga_engine.errors import SettingInvalid
from saga_engine.settings import TableReader

if TYPE_CHECKING:
    from saga_engine.analysis.trace_signature import TraceKey

#: The fields of the table by the status that they are about.
STATUSES: Final = {"completed": COMPLETED, "compensated": COMPENSATED, "waived": WAIVED}
_AGE: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionTable:
    """How long sagas are kept that have ended, and where they are archived before they are purged.

    ``completed``, ``compensated``, ``waived``: the age, from its end, at which a saga with this status is purged:
    ``90s``, ``5m``, ``2h`` or ``7d``, and 0 for never; by default ``keep_finished_s`` of ``[saga]``.
    ``archive``: a folder, relative to ``saga.toml``: each saga is written there first.
    """

    completed: str | int | None = None
    compensated: str | int | None = None
    waived: str | int | None = None
    archive: str | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """By final status: the age in ms at which a saga is purged, counted from its end; a status without one never is.

    ``archive``: the folder that a saga is written to before, without the fields that ``redaction`` names, and signed
    with ``key``.
    """

    age_ms: Mapping[str, int]
    archive: Path | None = None
    redaction: Redaction = field(default_factory=Redaction)
    key: TraceKey | None = None

    def due(self, status: str, changed_ms: int, now_ms: int) -> bool:
        """Whether a saga with this status that ended at ``changed_ms`` is old enough."""
        age_ms = self.age_ms.get(status)
        return status in SAGA_FINAL and age_ms is not None and changed_ms <= now_ms - age_ms


def age_of(text: Any, what: str) -> int:
    """``90s``, ``5m``, ``2h``, ``7d`` in ms, and 0 for 0. Raises ``SettingInvalid``."""
    if text == 0 and not isinstance(text, bool):
        return 0
    found = _AGE.fullmatch(text) if isinstance(text, str) else None
    if found is None or not int(found[1]):
        raise SettingInvalid(f"{what} cannot be {text!r}", hint="write 90s, 5m, 2h or 7d; 0 keeps them for ever")
    return int(found[1]) * _UNITS_MS[found[2]]


def retention_of(
    table: Mapping[str, Any],
    keep_finished_s: float,
    *,
    base: Path | None = None,
    source: str = "retention",
    redact: Sequence[str] = (),
    key: TraceKey | None = None,
) -> Retention:
    """The rules of a table. A status that it does not name is kept for ``keep_finished_s`` (0: for ever).

    ``archive`` is relative to ``base``. Raises ``SettingInvalid``.
    """
    reader = TableReader(source, table, of=RetentionTable)
    given, archive = {name: reader.any(name) for name in STATUSES}, reader.any("archive")
    reader.end()
    if archive is not None and not (isinstance(archive, str | Path) and str(archive)):
        raise SettingInvalid(f"archive of {source} must name a folder", hint='archive = "/var/lib/saga/archive"')
    usual_ms = round(keep_finished_s * 1000)
    ages = {
        status: age_of(given[name], f"{name} of {source}") if name in table else usual_ms
        for name, status in STATUSES.items()
    }
    return Retention(
        {status: age_ms for status, age_ms in ages.items() if age_ms},
        archive=None if archive is None else (base or Path()) / archive,
        redaction=Redaction(redact),
        key=key,
    )
