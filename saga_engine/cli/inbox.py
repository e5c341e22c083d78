"""``saga inbox``: the open questions of all sagas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import option
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.api import Coordinator
    from saga_engine.ports import Head
    from saga_engine.settings import Settings

_TEXT_CHARS: Final = 300
_OUTPUT_CHARS: Final = 160
_MAX_STANDING: Final = 20


def inbox(
    *,
    limit: Annotated[
        int, option("listQuestions", "limit", "--limit", most=1_000_000, help="Read at most this many sagas.")
    ] = 100,
    to: Annotated[str | None, option("listQuestions", "to", "--to", metavar="NAME")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the open questions, the oldest first: the known facts, the remaining effects, and the commands that answer.

    No tools are needed. Exit code 1 if a saga that asks cannot be read.

    Examples:
      saga inbox
      saga inbox --to finance
      saga inbox --json
    """
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, hint, note, shown
    from saga_engine.cli.words import say
    from saga_engine.core.question_view import addressed

    settings = settings_for(store)
    questions, unreadable, has_more = asyncio.run(_open_questions(settings, limit))
    if to is not None:
        questions = [each for each in questions if addressed(each, to)]
    if as_json:
        document({"questions": questions, "unreadable": unreadable, "has_more": has_more})
    else:
        if questions:
            data("\n".join(_lines(questions, settings)))
        else:
            note(say("inbox.none") if to is None else say("inbox.none-to", to=shown(to)))
        _tell_unreadable(unreadable)
        if has_more:
            hint(say("inbox.more", n=limit))
    return exit_codes.ERROR if unreadable else exit_codes.COMPLETED


# --- finding -------------------------------------------------------------------------------------------------------


async def _open_questions(settings: Settings, limit: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """The questions, the sagas with questions that cannot be read, and whether there are more of both."""
    from saga_engine.cli.read_only import looking_at_all, no_store
    from saga_engine.errors import JournalUnreadable, SagaNotFound

    if no_store(settings) is not None:
        return [], [], False
    questions: list[dict[str, Any]] = []
    unreadable: list[dict[str, Any]] = []
    async with looking_at_all(settings) as coordinator:
        heads = await _asking(coordinator)
        for head in heads[:limit]:
            try:
                questions += await _of_saga(coordinator, head, settings)
            except SagaNotFound:
                continue  # it ended and was purged since
            except JournalUnreadable as error:
                unreadable.append({"saga_id": head.saga_id, "error": error.to_dict()})
    questions.sort(key=lambda each: (each["asked_ms"], each["saga_id"]))
    return questions, unreadable, len(heads) > limit


async def _asking(coordinator: Coordinator) -> list[Head]:
    """Sagas with open questions, the oldest first. In some, other steps still run: their heads say so."""
    found: dict[str, Head] = {}
    for status in ("RUNNING", "COMPENSATING", "ESCALATED"):
        # In the order of a saga's statuses, so that one which moves on meanwhile is not missed.
        for head in await coordinator.list(status, limit=1_000_000):
            if status == "ESCALATED" or b'"questions"' in head.summary:
                found[head.saga_id] = head
    return sorted(found.values(), key=lambda head: (head.created_ms, head.saga_id))


async def _of_saga(coordinator: Coordinator, head: Head, settings: Settings) -> list[dict[str, Any]]:
    from saga_engine.cli.render import answer_of
    from saga_engine.hooks.messages import asks

    body = (await coordinator.show(head.saga_id)).body
    if not body["questions"]:
        return []
    history = await coordinator.history(head.saga_id)
    probes, advice = _probes(history), _advice(history)
    names = {step["step_id"]: step["name"] for step in body["steps"]}
    standing = [each for step in body["steps"] if (each := _standing(step, body["report"])) is not None]
    return [
        {
            "saga_id": head.saga_id,
            "status": body["status"],
            "goal": body["goal"],
            "session": "session" in body,
            **question,
            "step_name": names.get(question["step_id"], ""),
            "asks": asks(question["kind"], question["question_id"]),
            "probe": probes.get((str(question["step_id"]), question["direction"])),
            "planner": advice.get(str(question["step_id"])) if question["direction"] == "compensate" else None,
            "standing": standing,
            "waiting_messages": head.messages,
            "answers": [
                {
                    "decision": option,
                    "command": answer_of(head.saga_id, question, option, settings, session="session" in body),
                }
                for option in question["options"]
            ],
        }
        for question in body["questions"]
    ]


def _probes(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The last answers of the probes of a call in doubt, and their number."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        if record["k"] == "ProbeFailed":
            place = (record["step"], record.get("direction", "forward"))
            tries = found[place]["tries"] + 1 if place in found else 1
            found[place] = {"tries": tries, "error": record["error"], "at_ms": record["at"]}
    return found


def _advice(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The answer of a model that was asked to compensate for a step: steps, or why there are none (``error``)."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["k"] == "CompensationProposed" or (
            record["k"] == "PlannerGaveUp" and record["purpose"] == "compensate"
        ):
            written = record.get("written") or {}
            found[record["step"]] = {
                "model": written.get("model", ""),
                "prompt": written.get("prompt", ""),
                "error": record.get("error"),
                "at_ms": record["at"],
            }
    return found


def _standing(step: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The remaining effect of a step, as far as it is known; None if nothing."""
    step_id = step["step_id"]
    if step_id in report["failed"]:
        how = "remains: its undo failed"
    elif step_id in report["left_in_place"]:
        how = "remains for good"
    elif step["status"] == "SUCCEEDED" and step["kind"] != "read" and step.get("via") != "deduplicated":
        how = "remains"
    elif step_id in report["unresolved"]:
        how = "is in doubt"
    else:
        return None
    kept = {name: step[name] for name in ("step_id", "name", "tool", "output", "output_ref") if name in step}
    return kept | {"how": how}


# --- showing -------------------------------------------------------------------------------------------------------


def _lines(questions: Sequence[Mapping[str, Any]], settings: Settings) -> list[str]:
    from saga_engine.cli.words import counted

    lines = [counted("inbox.count", len(questions))]
    for question in questions:
        lines += ["", *_entry(question, settings)]
    return lines


def _entry(question: Mapping[str, Any], settings: Settings) -> list[str]:
    from saga_engine.cli import times
    from saga_engine.cli.hints import resume_line
    from saga_engine.cli.output import shown
    from saga_engine.cli.render import question_lines
    from saga_engine.cli.words import say, state

    head = say("saga.status", saga=shown(question["saga_id"]), status=state(question["status"]))
    if question["goal"]:
        head += f" · {shown(question['goal'], _TEXT_CHARS)}"
    lines = [head, say("inbox.asked", when=times.local(question["asked_ms"]))]
    if question["waiting_messages"]:
        lines.append(say("inbox.unread", line=resume_line(question["saga_id"], settings)))
    more = [
        *_probe_lines(question["probe"]),
        *_planner_lines(question["planner"], question["kind"]),
        *_standing_lines(question["standing"]),
    ]
    session = bool(question["session"])
    return [*lines, *question_lines(question["saga_id"], question, settings, session=session, more=more)]


def _probe_lines(probe: Mapping[str, Any] | None) -> list[str]:
    from saga_engine.cli.words import counted

    return [] if probe is None else [counted("inbox.probed", probe["tries"], error=_error_words(probe["error"]))]


def _error_words(error: Mapping[str, Any]) -> str:
    from saga_engine.cli.output import shown
    from saga_engine.cli.words import say, told

    return say("colon").join((shown(error["error_code"], 100), shown(told(error), _TEXT_CHARS)))


def _planner_lines(advice: Mapping[str, Any] | None, kind: str) -> list[str]:
    from saga_engine.cli.output import shown
    from saga_engine.cli.words import say

    if advice is None:
        return []
    model = say("inbox.model", model=shown(advice["model"], 200)) if advice["model"] else say("inbox.a-model")
    if advice["error"] is not None:
        return [say("inbox.found-none", model=model, error=_error_words(advice["error"]))]
    if kind == "compensation":
        return [say("inbox.proposed", model=model, prompt=shown(advice["prompt"], 100))]
    return [say("inbox.denied", model=model)]


def _standing_lines(standing: Sequence[Mapping[str, Any]]) -> list[str]:
    from saga_engine.cli.output import shown
    from saga_engine.cli.words import say

    if not standing:
        return [say("inbox.standing.none")]
    lines = [say("inbox.standing")]
    for each in standing[:_MAX_STANDING]:
        said = {name: shown(each[f"{name}_id" if name == "step" else name]) for name in ("step", "name", "tool")}
        said["how"] = say(f"how.{each['how']}")
        if each["output"] is not None:
            text = json.dumps(each["output"], ensure_ascii=False, separators=(",", ":"))
            lines.append(say("inbox.effect-output", **said, output=shown(text, _OUTPUT_CHARS)))
        else:
            lines.append(say("inbox.effect", **said))
    if len(standing) > _MAX_STANDING:
        lines.append(say("inbox.more-effects", n=len(standing) - _MAX_STANDING))
    return lines


def _tell_unreadable(unreadable: Sequence[Mapping[str, Any]]) -> None:
    from saga_engine.cli.output import note, paint, shown
    from saga_engine.cli.words import say

    for each in unreadable:
        note(say("inbox.unreadable", error=paint("error", say("error.word")), saga=shown(each["saga_id"])))
        note(f"  {shown(each['error']['message'])}")
