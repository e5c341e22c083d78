"""``sleep``: a step that only lets time pass: for a duration, or until a moment. Its output is null."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from saga_engine.language.errors import said
from saga_engine.plan import dates
from saga_engine.plan.decimals import NotComputable
from saga_engine.plan.limits import MAX_NAME_CHARS, MAX_SECONDS
from saga_engine.plan.words import Prompt, Unfit, Until, Word

_FORMS: Final = said(
    "sleep_invalid.form", day='"P1D"', minutes='"PT90M"', until='{"until": "2026-12-01T09:00:00+01:00"}'
)
_YEARS: Final = round(MAX_SECONDS / 31_536_000)


def begin(body: Any, now_ms: int) -> Until:
    """When a sleep that begins now ends."""
    try:
        return Until(_due_ms(body, now_ms))
    except NotComputable as error:
        raise Unfit(str(error)) from error


def check(body: Any) -> None:
    """A moment may be long past, or far away, when the plan runs; its form is known before."""
    try:
        _moment(body["until"]) if isinstance(body, Mapping) and body.keys() == {"until"} else _due_ms(body, 0)
    except NotComputable as error:
        raise Unfit(str(error)) from error


def told(body: Any) -> str:
    """The moment, or how long."""
    if isinstance(body, Mapping):
        return f"until {body['until']}"
    return f"{body:g} s" if isinstance(body, int | float) else str(body)


def _due_ms(body: Any, now_ms: int) -> int:
    if isinstance(body, bool) or not isinstance(body, int | float | str | Mapping):
        raise NotComputable(_FORMS)
    if isinstance(body, Mapping):
        if body.keys() != {"until"}:
            raise NotComputable(_FORMS)
        end_ms = _ms(_moment(body["until"]))
    elif isinstance(body, str):
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        end = dates.later(now, dates.duration(body))
        assert isinstance(end, datetime)
        end_ms = now_ms + round((end - now).total_seconds() * 1000)
        if end_ms < now_ms:
            raise NotComputable(said("sleep_invalid.negative"))
    else:
        if not 0 <= body <= MAX_SECONDS:
            raise NotComputable(said("sleep_invalid.seconds", most=f"{MAX_SECONDS:.0f}"))
        end_ms = now_ms + round(body * 1000)
    if end_ms - now_ms > MAX_SECONDS * 1000:
        raise NotComputable(said("sleep_invalid.years", years=_YEARS))
    return end_ms


def _moment(text: Any) -> datetime:
    found = dates.moment(text)
    if not isinstance(found, datetime) or found.tzinfo is None:
        raise NotComputable(said("sleep_invalid.moment"))
    return found


def _ms(moment: datetime) -> int:
    return round((moment - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)


WORD: Final = Word(
    about=(
        "In place of a tool: let time pass. Seconds; a duration of ISO 8601, such as 'P1D' or 'PT90M'; or an object "
        "with 'until'."
    ),
    schema={
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": MAX_SECONDS},
            {"type": "string", "maxLength": MAX_NAME_CHARS},
            {
                "type": "object",
                "properties": {
                    "until": {
                        "type": "string",
                        "maxLength": MAX_NAME_CHARS,
                        "description": (
                            "A date with a time and an offset (ISO 8601): '2026-12-01T09:00:00+01:00'. It may bind."
                        ),
                    }
                },
                "required": ["until"],
                "additionalProperties": False,
            },
        ]
    },
    begin=begin,
    check=check,
    output={"type": "null"},
    told=told,
    prompt=Prompt(
        "letting time pass",
        '`"sleep": "PT90M"` (a duration of ISO 8601, or seconds), or `"sleep": {"until": '
        '"2026-12-01T09:00:00+01:00"}`, in place of `tool`: time passes. Use it only where the goal asks for a delay.',
        '{"steps": [{"step_id": 1, "tool": "orders.create", "params": {"order": "$input.order"}}, {"step_id": 2, '
        '"sleep": "PT90M"}, {"step_id": 3, "tool": "stock.reserve", "params": {"order": "$output.step_1.id"}}]}',
    ),
)
