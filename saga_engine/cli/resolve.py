"""``saga resolve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli.from_table import argument, option
from saga_engine.cli.options import (
    ByOption,
    DebugOption,
    JsonOption,
    NoteOption,
    OptionalSagaArgument,
    StoreOption,
    ToolsOption,
)
from saga_engine.cli.search_options import Many, for_many
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption

if TYPE_CHECKING:
    from saga_engine.api import Engine
    from saga_engine.execution.result import SagaResult
    from saga_engine.settings import Settings

_SEARCH = "Of a search: "
_DecisionArgument = Annotated[
    str | None,
    argument(
        *("resolveSaga", "decision"),
        metavar="DECISION",
        help="Without it, the question is shown, with what follows from each answer. "
        "happened | not-happened | retry | undone (I undid it by hand) | accept (it stays as it is) | "
        "approve | deny | undo | keep | close (a session whose agent failed) | "
        "ask-again (a model, how to compensate) | an option of the plan's own question | "
        "answer (a value, to a question without options)",
    ),
]
_ExpectOption = Annotated[
    str,
    option(
        *("resolveSaga", "expect", "--expect"),
        metavar="MARK",
        help="The mark that 'saga inbox' shows with the answer: refused if other effects follow by now.",
    ),
]


_OutputOption = Annotated[
    str | None,
    option("resolveSaga", "output", "--output", metavar="JSON"),
]
_StepArgument = Annotated[str | None, argument("resolveSaga", "step_id", metavar="STEP")]
_TwiceOption = Annotated[bool, option("createJob", "twice", "--twice", before=_SEARCH)]
_DecisionOption = Annotated[
    str | None, option("createJob", "decision", "--decision", metavar="DECISION", before=_SEARCH)
]
_AboutOption = Annotated[
    str | None, typer.Option("--step", metavar="STEP", help="Of a search: only questions about this step.")
]
_KindOption = Annotated[str | None, option("createJob", "kind", "--kind", metavar="KIND", before=_SEARCH)]


@for_many
def resolve(
    saga_id: OptionalSagaArgument = None,
    step: _StepArgument = None,
    decision: _DecisionArgument = None,
    *,
    output: _OutputOption = None,
    expect: _ExpectOption = "",
    many: Many = Many(),
    answer_all: _DecisionOption = None,
    about: _AboutOption = None,
    kind: _KindOption = None,
    twice: _TwiceOption = False,
    by: ByOption = None,
    note: NoteOption = "",
    tools: ToolsOption = None,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Answer an open question of a saga. The saga then continues here, unless a live process runs it (exit code 8).

    Without a DECISION the question and what follows from each answer are shown, and nothing is answered; then --output,
    --expect, --by and --note are refused.

    The answer is recorded first. Without tools it is only recorded (exit code 8), and a worker or `saga resume` acts
    on it. The same answer again is no conflict; a different one is refused (exit code 6). With --expect it is refused
    if other effects follow by now than those that `saga inbox` showed. To repeat a call in doubt whose tool honours
    no key needs it: it may happen twice.

    With a search (--tag, --name, --status, --tool, --since) --decision answers every question that --step and --kind
    leave. They are shown with what follows, and you are asked first. A call that may happen twice is repeated only with
    --twice.

    Examples:
      saga resolve trip-42 1
      saga resolve trip-42 1 happened --output '{"order_id": "A-7"}' --tools tools.py
      saga resolve trip-42 2 undone --by ada --note "refunded in the bank's portal" --tools tools.py
      saga resolve trip-42 4 "Hotel Blue" --by ada --tools tools.py
      saga resolve trip-42 5 answer --output '{"seats": 3}' --tools tools.py
      saga resolve --tag import-7 --kind in-doubt --decision not-happened --dry-run
    """
    from saga_engine.cli.batch import in_batch, one_or_many
    from saga_engine.cli.inputs import output_value
    from saga_engine.cli.options import person
    from saga_engine.cli.temporal import settings_there

    settings = settings_there(runtime, task_queue, store, tools)
    chosen = {"step_id": about, "kind": kind, "decision": answer_all or "", "twice": twice}
    _refuse_mixed(saga_id, {"--decision": answer_all, "--step": about, "--kind": kind, "--twice": twice or None})
    if one_or_many(saga_id, many):
        if answer_all is None:
            raise typer.BadParameter("a search needs the answer to its questions", param_hint="--decision")
        said = {"output": output_value(output), "by": person(by), "note": note}
        return in_batch("resolve", many, settings, as_json=as_json, **chosen, **said)
    if saga_id is None or step is None:
        raise typer.BadParameter("give the step that the question is about", param_hint="STEP")
    if decision is None:
        _refuse_idle({"--output": output, "--expect": expect, "--by": by, "--note": note})
        return _show(settings, saga_id, step, as_json=as_json)
    given = {"output": output_value(output), "note": note, "expect": expect}
    return _answer(settings, saga_id, step, decision, by=person(by), as_json=as_json, **given)


def _answer(settings: Settings, saga_id: str, step: str, decision: str, *, by: str, as_json: bool, **given: Any) -> int:
    """Answer one question."""
    from saga_engine.cli.signals import answer

    async def post(coordinator: Engine) -> SagaResult:
        wait = settings.names_tools or not coordinator.drives
        return await coordinator.resolve(saga_id, step, decision, by=by, wait=wait, **given)

    return answer(saga_id, post, settings, what="decision", as_json=as_json)


def _refuse_mixed(saga_id: str | None, given: dict[str, Any]) -> None:
    """The options of a search do not go with an id."""
    for name, value in given.items():
        if saga_id is not None and value is not None:
            raise typer.BadParameter("it belongs to a search, not to one saga", param_hint=name)


def _refuse_idle(given: dict[str, str | None]) -> None:
    """Without a decision nothing is answered, so an option that belongs to an answer is a mistake."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(
                "it belongs to an answer, and no DECISION is given: without one the question and what follows from each"
                " answer are shown",
                param_hint=name,
            )


def _show(settings: Settings, saga_id: str, step: str, *, as_json: bool) -> int:
    """The questions about a step, with what follows from each answer. Nothing changes, and no tools are needed."""
    import asyncio

    from saga_engine.cli import exit_codes
    from saga_engine.cli.output import data, document
    from saga_engine.cli.read_only import looking
    from saga_engine.cli.render import question_lines
    from saga_engine.cli.words import say
    from saga_engine.errors import DecisionRefused
    from saga_engine.language.errors import said

    async def look() -> SagaResult:
        async with looking(settings, saga_id) as coordinator:
            return await coordinator.show(saga_id)

    body = asyncio.run(look()).to_dict(full=False)
    found = [each for each in body["questions"] if str(each["step_id"]) == step]
    if not found:
        raise DecisionRefused(said("decision_refused.nothing", step=step), hint=say("no-question.hint", saga=saga_id))
    if as_json:
        document({"questions": found})
    else:
        session = "session" in body
        data("\n".join(line for each in found for line in question_lines(saga_id, each, settings, session=session)))
    return exit_codes.NEEDS_PERSON
