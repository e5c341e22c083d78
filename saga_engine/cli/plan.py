"""``saga plan``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import argument, option
from saga_engine.cli.options import DebugOption, InputOption, JsonOption, ToolsOption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from saga_engine.errors import SagaError
    from saga_engine.planner.planning import PlannedPlan
    from saga_engine.planner.settings import PlannerSettings
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

#: The shown size of a failed round.
_SAID_CHARS: Final = 300
_HINT_CHARS: Final = 300
#: The shown size of one fact of the review.
_REVIEW_CHARS: Final = 1000
#: The most of a row where the user agrees to the calls by it: more than a plan has.
_CALLS_CHARS: Final = 1_000_000
_PROBLEMS: Final = 5
_CODES: Final = 3
#: What came back in a round, by the word of the transcript.
_CAME: Final = {
    "plan": "a plan",
    "improved": "another plan",
    "impossible": "a refusal",
    "text": "no JSON object",
    "tools": "a request for hidden tools",
    "reads": "a request for lookups",
    "questions": "questions",
    "needs": "a request for what it may not use",
}
#: How often a model may ask on the terminal for one plan.
_ASKED_BACK: Final = 3


MayUseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--may-use",
        metavar="PART",
        help="Also allow ask, wait, sleep, on_error, irreversible, each (any tool) or finally (any tool). Repeatable.",
    ),
]


ReadOption = Annotated[
    list[str] | None,
    typer.Option("--read", metavar="TOOL", help="A tool that reads and may be called to make the plan. Repeatable."),
]
ReviseOption = Annotated[
    str | None,
    option("makePlan", "revise", "--revise", metavar="PLAN"),
]
SecretOption = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="NAME", help="A name that $secret.NAME may have in the plan. Repeatable."),
]
RoundsOption = Annotated[
    int | None,
    typer.Option("--rounds", metavar="N", help="The maximum number of requests to the model. Default: 3."),
]
IntentOption = Annotated[
    str | None,
    typer.Option("--intent", metavar="NAME", help="The prepared plan to use if no model answers."),
]
AnswerOption = Annotated[
    list[str] | None,
    option("makePlan", "answers", "--answer", metavar="K=V"),
]
SubmitOption = Annotated[
    bool, typer.Option("--submit", help="Run the plan if you agree to it, after its review, on the terminal.")
]


class OnFailure(StrEnum):
    """What happens when a step fails permanently."""

    COMPENSATE = "compensate"
    PAUSE = "pause"
    REPLAN = "replan"


def plan(
    goal: Annotated[str, argument("makePlan", "goal", metavar="GOAL", more="; - reads it from stdin.")],
    *,
    tools: ToolsOption = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="P:NAME", help="The model, as provider:name; also SAGA_MODEL or saga.toml."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the plan there instead of to stdout.")
    ] = None,
    given: InputOption = None,
    secrets: SecretOption = None,
    rounds: RoundsOption = None,
    intent: IntentOption = None,
    answered: AnswerOption = None,
    on_failure: Annotated[
        OnFailure | None,
        typer.Option("--on-failure", help="The plan's on_failure, which the model does not set."),
    ] = None,
    may_use: MayUseOption = None,
    reads: ReadOption = None,
    revise: ReviseOption = None,
    then_submit: SubmitOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Ask a model for a plan for a goal, check the plan, and print it. Nothing runs without --submit and a yes.

    This needs the extra: pip install "saga-engine[planner]". Questions of the model are asked on the terminal; without
    one the exit code is 4, and --answer answers them. It is 7 without a valid plan, and 1 if the goal is impossible.

    Every plan may compute, and have conditions, lists of calls that can be undone, and messages at the end. What else a
    goal needs is allowed with --may-use: if a person has to decide while it runs, --may-use ask; if it waits for a
    payment, --may-use wait. A model that needs more than that says so, and the exit code is 4.

    Examples:
      saga plan "Book a flight and a hotel" --tools tools.py --model openai:gpt-5 -o trip.json
      SAGA_MODEL=ollama:qwen3 saga plan "Refund order 17" --tools tools.py --input order=17
      saga plan "Refund order 17 once its customer agrees" --tools tools.py --may-use ask --may-use wait
    """
    from saga_engine.cli.inputs import input_values
    from saga_engine.cli.options import settings_for
    from saga_engine.errors import SagaError
    from saga_engine.planner.settings import planner_settings

    values, answers = input_values(given or []), input_values(answered or [], "--answer")
    _require_terminal(then_submit=then_submit, as_json=as_json)
    settings = settings_for(None, tools)
    flags = {"model": model, "rounds": rounds, "secrets": secrets, "may_use": may_use, "reads": reads}
    chosen = planner_settings(settings.planner, flags, base=settings.origin("planner")[0])
    try:
        made = _planned(_goal(goal), settings, chosen, values, intent, answers, revise, on_failure, may_ask=not as_json)
        planned = made.with_on_failure(on_failure)
    except SagaError as error:
        _tell_failure(error, chosen.model, as_json=as_json)
        _tell_leave(error)
        raise
    _tell(planned, planned.to_dict(), out, as_json=as_json, printed=not then_submit)
    return _run(planned, settings) if then_submit else exit_codes.COMPLETED


def _require_terminal(*, then_submit: bool, as_json: bool) -> None:
    """Nobody runs a model's plan unseen. Raises ``BadParameter`` where nobody can be asked."""
    import sys

    if then_submit and (as_json or not sys.stdin.isatty()):
        said = "nobody can be asked here: write the plan with -o, read it, and run it with saga submit"
        raise typer.BadParameter(said, param_hint="--submit")


def _run(planned: PlannedPlan, settings: Settings) -> int:
    """Submit the plan if the user agrees to it after the review; the exit code is that of the saga."""
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.output import note
    from saga_engine.cli.submit import submitted
    from saga_engine.execution.ids import new_saga_id

    if not typer.confirm("submit this plan?", default=False, err=True):
        note("nothing was submitted")
        return exit_codes.COMPLETED
    given = {"plan": planned.plan, "saga_id": new_saga_id(), "input": None, "tags": (), "detach": False}
    return submitted(settings, registry_for(settings), planned.plan, given, full=False, as_json=False)


def _tell_failure(error: SagaError, model: str, *, as_json: bool) -> None:
    """Print the model's questions, or what it answered; the document of an error contains all of it."""
    from saga_engine.errors import PlannerAsks

    if isinstance(error, PlannerAsks):
        _tell_questions(error.questions)
    elif not as_json:
        _tell_rounds(model, error.context)


def _tell_leave(error: SagaError) -> None:
    """Print this command with the options that allow what the model needs, if that is what is missing."""
    import shlex
    import sys

    from saga_engine.cli.output import note, shown
    from saga_engine.errors import PlannerNeeds
    from saga_engine.planner.features import command, refused_parts

    options = str(error.context.get("options", "")) if isinstance(error, PlannerNeeds) else ""
    if not options and isinstance(problems := error.context.get("problems"), list):
        options = command(refused_parts(each for each in problems if isinstance(each, dict)))
    if options:
        given = sys.argv[sys.argv.index("plan") :] if "plan" in sys.argv else ["plan", "GOAL"]
        note(f"allow it with: saga {shown(shlex.join(given), 2000)} {shown(options, 2000)}")


def _goal(text: str) -> str:
    if text != "-":
        return text
    import sys

    from saga_engine.plan.limits import MAX_GOAL_CHARS

    return sys.stdin.read(MAX_GOAL_CHARS + 1).strip()


def _planned(  # noqa: PLR0917
    goal: str,
    settings: Settings,
    chosen: PlannerSettings,
    values: dict[str, Any],
    intent: str | None,
    answers: dict[str, Any],
    revise: str | None,
    on_failure: OnFailure | None,
    *,
    may_ask: bool,
) -> PlannedPlan:
    """Ask the planner. Raises the errors of ``Planning.plan``, and ``SettingInvalid``."""
    import asyncio
    from dataclasses import replace
    from datetime import datetime

    from saga_engine.cli.options import has_policy, plan_source, policy_of, registry_for
    from saga_engine.cli.output import note, shown, stdout_kept_clean
    from saga_engine.errors import SettingInvalid
    from saga_engine.plan.model import load_plan
    from saga_engine.planner.plan_reads import registry_reads
    from saga_engine.planner.planning import Planning
    from saga_engine.policy.plan_time import withheld

    registry = registry_for(settings)
    if not registry.names():
        raise SettingInvalid("there are no tools to plan with", hint="give --tools, SAGA_TOOLS or tools in saga.toml")
    _check_secrets(chosen, registry)
    planning = Planning.of(chosen)
    policy = policy_of(settings) if has_policy(settings) else None
    if policy is not None:
        planning = replace(planning, withheld=withheld(policy))
    planning.prepared(goal, intent)  # an intent without a plan is an error before a model is asked
    some, hidden = planning.choose(goal, registry)
    if chosen.model:
        many = f"{len(some)} of {len(some) + len(hidden)}" if hidden else f"{len(some)}"
        note(f"asking {shown(chosen.model, 200)} for a plan with {many} tools")

    before = None if revise is None else load_plan(plan_source(revise))

    def ask(answers: dict[str, Any], may_use: Sequence[str]) -> PlannedPlan:
        with stdout_kept_clean():
            return asyncio.run(
                planning.plan(
                    goal,
                    some,
                    hidden=hidden,
                    catalog=registry,
                    input=values,
                    intent=intent,
                    answers=answers,
                    now=datetime.now().astimezone(),
                    progress=_tell_round,
                    call_read=registry_reads(registry, policy),
                    revises=before,
                    policy=policy,
                    may_use=may_use,
                    on_failure=on_failure,
                )
            )

    return _asked_back(ask, answers, chosen.may_use, may_ask=may_ask)


def _asked_back(
    ask: Callable[[dict[str, Any], Sequence[str]], PlannedPlan],
    answers: dict[str, Any],
    may_use: tuple[str, ...],
    *,
    may_ask: bool,
) -> PlannedPlan:
    """Ask the planner, and on the terminal what it asks for: answers to its questions, and leave."""
    from saga_engine.errors import PlannerAsks, PlannerNeeds

    for _ in range(_ASKED_BACK):
        try:
            return ask(answers, may_use)
        except PlannerAsks as asked:
            found = _answers(asked.questions) if may_ask else None
            if found is None:
                raise
            answers = {**answers, **found}
        except PlannerNeeds as needed:
            if not may_ask or not _allows(needed.needs):
                raise
            may_use = (*may_use, *needed.needs)
    return ask(answers, may_use)


def _check_secrets(chosen: PlannerSettings, registry: ToolRegistry) -> None:
    """Raises ``SettingInvalid`` for a secret that no tool may have."""
    from saga_engine.cli.output import shown
    from saga_engine.errors import SettingInvalid

    held = [spec.secrets or () for tool in registry.names() if (spec := registry.spec(tool)) is not None]
    for name in chosen.secrets:
        if not any(name in names or "*" in names for names in held):
            hint = f'allow it in saga.toml: [secrets] allow = {{ TOOL = ["{shown(name, 80)}"] }}'
            raise SettingInvalid(f"no tool may have the secret {shown(name, 80)}", hint=hint)


def _answers(questions: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The user's answers, asked for on the terminal; None if there is no terminal, or an answer is empty."""
    import sys

    from saga_engine.cli.output import note, shown

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    found: dict[str, Any] = {}
    for question in questions:
        options = question.get("options", ())
        note(f"the model asks: {shown(question['question'])}")
        for number, each in enumerate(options, 1):
            note(f"  {number}. {shown(each)}")
        sys.stderr.write("> ")
        sys.stderr.flush()
        said = sys.stdin.readline().strip()
        if said.isdecimal() and 0 < int(said) <= len(options):
            said = options[int(said) - 1]
        if not said:
            return None
        found[question["name"]] = {"question": question["question"], "answer": said}
    return found


def _allows(needs: Sequence[str]) -> bool:
    """Whether the user allows these parts for this plan, asked on the terminal; lookups need tools that are named."""
    import sys

    from saga_engine.cli.output import note
    from saga_engine.planner.features import FEATURES

    if not all(name in FEATURES for name in needs) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    for name in needs:
        note(f"the model needs {name}: {FEATURES[name].short}")
    sys.stderr.write("allow it for this plan? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell_round(entry: Mapping[str, Any]) -> None:
    """One line about a round that has ended: what came back, its problems, and its usage."""
    from saga_engine.cli.output import note, shown

    problems, used = entry["problems"], entry["usage"]
    line = f"round {entry['round']}: {_CAME.get(entry['came'], entry['came'])}"
    if problems:
        codes = list(dict.fromkeys(f"{problem['code']} at {problem['path']}" for problem in problems))
        more = f" and {len(codes) - _CODES} more" if len(codes) > _CODES else ""
        line += f" with {_count(len(problems), 'problem')} ({', '.join(codes[:_CODES])}{more})"
    note(shown(f"{line}; {used['seconds']:.1f} s, {used['tokens_in']} + {used['tokens_out']} tokens", 500))


def _tell_questions(questions: Sequence[Mapping[str, Any]]) -> None:
    """Print the questions of the model, and how to answer them."""
    from saga_engine.cli.output import note, shown

    for question in questions:
        options = f" ({', '.join(shown(option) for option in question['options'])})" if question.get("options") else ""
        note(f"question {question['name']}: {shown(question['question'])}{options}")
    names = [f"--answer {question['name']}=…" for question in questions]
    note(f"answer with {' '.join(names)}")


def _tell_rounds(model: str, context: Mapping[str, Any]) -> None:
    """Print the answer and the usage of each round of a failed question."""
    from saga_engine.cli.output import note, shown

    transcript = context.get("transcript")
    if not isinstance(transcript, list):
        return
    for entry in transcript:
        note(f"round {entry['round']}: the model said: {shown(entry['answer'], _SAID_CHARS)}")
        for problem in entry["problems"][:_PROBLEMS]:
            hint = f" ({shown(problem['hint'], _HINT_CHARS)})" if problem["hint"] else ""
            note(f"  {shown(problem['path'], 200)}: {shown(problem['message'], _HINT_CHARS)}{hint}")
        if len(entry["problems"]) > _PROBLEMS:
            note(f"  and {len(entry['problems']) - _PROBLEMS} more; --json has them all")
    if transcript or context["usage"]["requests"]:  # else no request was made
        note(_used(model, context["rounds"], context["usage"], context["budget"]))


def _used(model: str, rounds: int, used: Mapping[str, Any], budget: Mapping[str, Any]) -> str:
    """One line: the usage, and the budget."""
    from saga_engine.cli.output import shown

    price = "cost unknown" if used["cost_usd"] is None else f"{used['cost_usd']:.4f} USD"
    most = [
        f"{budget[name]:g} {unit}" if name == "seconds" else f"{budget[name]} {unit}"
        for name, unit in (("rounds", "rounds"), ("requests", "requests"), ("tokens", "tokens"), ("seconds", "s"))
        if budget[name] is not None
    ]
    cost = "no limit on cost" if budget["cost_usd"] is None else f"{budget['cost_usd']:g} USD"
    return (
        f"{shown(model, 200)}: {_count(rounds, 'round')}, {_count(used['requests'], 'request')}, "
        f"{used['tokens_in']} + {used['tokens_out']} tokens, {price}, {used['seconds']:.1f} s "
        f"(at most {', '.join([*most, cost])})"
    )


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _tell_review(body: Mapping[str, Any], *, calls: bool) -> None:
    """What a person wants to know before the plan runs: a table, or lines where it does not fit the terminal.

    ``calls``: with every call in full, because the plan itself is not printed.
    """
    import sys

    from saga_engine.cli.output import fits, note, shown, stderr_line, table
    from saga_engine.planner.review_rows import review_rows

    rows = review_rows(body, calls=calls)
    if not rows:
        return
    most = _CALLS_CHARS if calls else _REVIEW_CHARS
    titles = ["STEP", "REVIEW", ""]
    if fits(titles, rows, limit_chars=most, stream=sys.stderr):
        for line in table(titles, rows, limit_chars=most, stream=sys.stderr).splitlines():
            stderr_line(line)
        return
    for row in rows:
        note(f"{f'step {shown(row.step, 80)}, ' if row.step else ''}{row.what}: {shown(row.text, most)}")


def _tell(planned: PlannedPlan, body: dict[str, Any], out: Path | None, *, as_json: bool, printed: bool) -> None:
    from saga_engine.cli.output import document, json_text, note, shown
    from saga_engine.errors import SettingInvalid

    if out is not None:
        try:
            out.write_text(json_text(body["plan"]) + "\n", encoding="utf-8")
        except OSError as error:
            raise SettingInvalid(
                f"{out} cannot be written: {error.strerror or error}", hint="name another -o"
            ) from error
    if as_json:
        document(body | ({"file": str(out)} if out is not None else {}))
    elif out is None and printed:
        document(body["plan"])
    for line in planned.notes:
        note(f"note: {shown(line)}")
    _tell_review(body, calls=not printed)
    if planned.source == "model":
        note(_used(planned.model, planned.rounds, body["usage"], planned.budget))
    if out is not None:
        note(f"the plan is in {shown(str(out))}; `saga submit` runs it")
