"""The form of a ``sleep`` step: for how long, or until when. Pure: the caller passes the time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import dates
from saga_engine.plan.decimals import NotComputable
from saga_engine.plan.limits import MAX_SECONDS

if TYPE_CHECKING:
    from saga_engine.plan.bindings import Template
    from saga_engine.plan.problems import Path, Problems

_FORMS: Final = (
    'write seconds, such as 90; a duration of ISO 8601, such as "P1D" or "PT90M"; '
    'or {"until": "2026-12-01T09:00:00+01:00"}'
)
_YEARS: Final = round(MAX_SECONDS / 31_536_000)


def due_ms(body: Any, now_ms: int) -> int:
    """When a sleep that begins now ends, in Unix ms. Raises ``NotComputable``."""
    if isinstance(body, bool) or not isinstance(body, int | float | str | Mapping):
        raise NotComputable(f"this is no time to sleep: {_FORMS}")
    if isinstance(body, Mapping):
        if body.keys() != {"until"}:
            raise NotComputable(f"this is no time to sleep: {_FORMS}")
        end_ms = _ms(_moment(body["until"]))
    elif isinstance(body, str):
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        end = dates.later(now, dates.duration(body))
        assert isinstance(end, datetime)
        end_ms = now_ms + round((end - now).total_seconds() * 1000)
        if end_ms < now_ms:
            raise NotComputable("a duration to sleep is not negative")
    else:
        if not 0 <= body <= MAX_SECONDS:
            raise NotComputable(f"the seconds to sleep are not between 0 and {MAX_SECONDS:.0f}")
        end_ms = now_ms + round(body * 1000)
    if end_ms - now_ms > MAX_SECONDS * 1000:
        raise NotComputable(f"the end of the sleep is more than {_YEARS} years away")
    return end_ms


def _moment(text: Any) -> datetime:
    found = dates.moment(text)
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise NotComputable("a moment has a time and an offset: 2026-12-01T09:00:00+01:00, or Z for UTC")
    return found


def _ms(moment: datetime) -> int:
    return round((moment - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)


def check_sleep(problems: Problems, body: Any, template: Template, path: Path) -> None:
    """The problem of a ``sleep`` at ``path`` that its bindings leave visible; the rest is found when it begins."""
    if template.places:
        return
    try:
        # A moment may be long past, or far away, when the plan runs; its form is known now.
        _moment(body.get("until")) if isinstance(body, Mapping) and body.keys() == {"until"} else due_ms(body, 0)
    except NotComputable as error:
        problems.add("sleep-invalid", path, str(error), _FORMS)
