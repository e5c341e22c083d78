"""``saga amend``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from saga_engine.cli.from_table import argument
from saga_engine.cli.options import (
    ByOption,
    DebugOption,
    JsonOption,
    NoteOption,
    SagaArgument,
    StoreOption,
    ToolsOption,
)
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption

if TYPE_CHECKING:
    from pathlib import Path

    from saga_engine.api import Engine
    from saga_engine.execution.result import SagaResult

_FILE_HINT = "give the path of a JSON file, or - to read them from stdin"


def amend(
    saga_id: SagaArgument,
    steps: Annotated[
        str,
        argument(
            *("amendSaga", "steps"),
            metavar="STEPS",
            help="A file with a JSON list of steps, or - to read it from stdin.",
        ),
    ],
    *,
    by: ByOption = None,
    note: NoteOption = "",
    tools: ToolsOption = None,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Add steps to a running saga. The saga then continues here, unless a live process runs it (exit code 8).

    Write the steps as in a plan, as a list or as an object with "steps". The engine checks them against the current
    saga, which needs its tools (exit code 7 if they do not fit), and undoes them with the rest. A saga that has ended
    or is being compensated is refused (exit code 6).

    Examples:
      saga amend trip-42 more.json --note "a taxi, too" --tools tools.py
      saga amend trip-42 - --tools tools.py < more.json
    """
    from saga_engine.cli.options import person, plan_source
    from saga_engine.cli.signals import answer
    from saga_engine.cli.temporal import settings_there

    added = read_steps(plan_source(steps))

    async def post(coordinator: Engine) -> SagaResult:
        return await coordinator.amend(saga_id, added, by=person(by), note=note)

    return answer(saga_id, post, settings_there(runtime, task_queue, store, tools), what="addition", as_json=as_json)


def read_steps(source: bytes | Path) -> list[dict[str, Any]]:
    """The steps in a file or from stdin. Raises ``PlanInvalid``."""
    import json

    from saga_engine.errors import ValueNotJson
    from saga_engine.plan.limits import MAX_PLAN_BYTES
    from saga_engine.plan.strict_json import strict_json

    data = source if isinstance(source, bytes) else _file(source, MAX_PLAN_BYTES + 1)
    if len(data) > MAX_PLAN_BYTES:
        _refuse("limit-size", f"the steps are larger than {MAX_PLAN_BYTES} bytes", hint="move large values out of them")
    try:
        value = strict_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        _refuse("plan-not-json", f"the steps are not UTF-8: byte {error.start} is wrong", hint="save them as UTF-8")
    except json.JSONDecodeError as error:
        _refuse("plan-not-json", f"the steps are not JSON: {error.msg} at line {error.lineno}, column {error.colno}")
    except ValueNotJson as error:
        _refuse("plan-not-json", error.message, hint=error.hint or "")
    return _listed(value)


def _listed(value: Any) -> list[dict[str, Any]]:
    from saga_engine.plan.values import json_path

    path = "$"
    if isinstance(value, dict):
        # The other fields of a plan are fixed for this saga; ignoring them would look as if they counted.
        for field in value:
            if field != "steps":
                where = json_path((field,))
                _refuse("field-unknown", "only 'steps' can be added to a saga", path=where, hint="leave the field out")
        value, path = value.get("steps"), "$.steps"
    if not isinstance(value, list):
        _refuse("field-invalid", "there is no list of steps", path=path, hint='write [{"step_id": …, "tool": …}]')
    for at, step in enumerate(value):
        if not isinstance(step, dict):
            _refuse("field-invalid", "a step is an object", path=f"$.steps[{at}]", hint="see docs/plan-format.md")
    return value


def _file(path: Path, limit_bytes: int) -> bytes:
    from saga_engine.plan.values import cut

    name = cut(str(path), 200)
    try:
        # Only a regular file: reading a pipe would wait for ever.
        if not path.is_file():
            reason = "it is no regular file" if path.exists() else "there is no such file"
            _refuse("plan-unreadable", f"the steps {name} cannot be read: {reason}", hint=_FILE_HINT)
        with path.open("rb") as file:
            return file.read(limit_bytes)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _refuse("plan-unreadable", f"the steps {name} cannot be read: {cut(reason, 200)}")


def _refuse(code: str, message: str, *, path: str = "$", hint: str = "") -> NoReturn:
    from saga_engine.errors import PlanInvalid, Problem

    raise PlanInvalid([Problem(code, path, message, hint)])
