"""The records of a saga's journal on its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.execution.owner import words_of
from saga_engine.server.console.frame import json_block, moment, pager, saga_address
from saga_engine.server.console.html import Html, Part, tag
from saga_engine.server.console.words import Words

WINDOW: Final = 100
#: What the line of a record tells, beside its kind and step, in this order.
_TOLD: Final = (
    "direction",
    "attempt",
    "via",
    "reason",
    "decision",
    "by",
    "note",
    "kind",
    "owner",
    "rule",
    "delay_ms",
    "end",
)
_CHARS: Final = 120


def records_part(words: Words, saga_id: str, records: Sequence[Mapping[str, Any]], first: int, total: int) -> Html:
    """A window of the records, each with its fields."""
    label = words("tab.records")
    return tag(
        "section",
        {"class": "card records", "id": "records", "aria-label": label},
        tag("ol", {"class": "records", "start": first}, [_record(words, record) for record in records]),
        pager(words, first, WINDOW, total, lambda place: saga_address(saga_id, view="records", at=place)),
    )


def _record(words: Words, record: Mapping[str, Any]) -> Html:
    seq, kind = int(record["seq"]), str(record["k"])
    told: list[Part] = []
    for name in _TOLD:
        value = record.get(name)
        if value not in (None, "", 0) and not isinstance(value, dict | list):
            shown = words_of(str(value)) if name == "owner" else value
            told.append(tag("span", None, f"{name} {shown}"[:_CHARS]))
    call = record.get("call")
    if kind == "StepIntended" and isinstance(call, dict):
        told.append(tag("span", None, f"call {call.get('number', 0) + 1}/{call['of']}"))
    error = record.get("error")
    if isinstance(error, dict):
        told.append(tag("span", {"class": "why"}, f"{error.get('error_code')}: {words.error(error)}"[:_CHARS]))
    rest = {name: value for name, value in record.items() if name not in ("k", "seq", "at")}
    return tag(
        "li",
        {"id": f"record-{seq}", "data-seq": seq, "data-row": str(seq)},
        tag(
            "details",
            {"id": f"details-{seq}"},
            tag(
                "summary",
                None,
                tag("span", {"class": "seq number"}, seq),
                tag("span", {"class": f"kind {_family(kind)}"}, kind),
                tag("span", {"class": "of"}, str(record.get("step", ""))[:60]),
                tag("span", {"class": "told"}, told),
                tag("span", {"class": "at"}, moment(int(record["at"]))),
            ),
            json_block(rest, words("records.fields", seq=seq)),
        ),
    )


def _family(kind: str) -> str:
    """The colour of a record."""
    for family, part in (
        ("bad", ("Failed", "Blocked", "Refused", "Passed")),
        ("doubt", ("Doubt", "Unsettled")),
        ("asks", ("Escalated", "Expired")),
        ("back", ("Compensat", "Cancel")),
        ("good", ("Succeeded", "Completed", "Resolved")),
    ):
        if any(each in kind for each in part):
            return family
    return ""
