"""pydantic-ai: an agent whose tools go through a session (extra ``pydantic-ai``).

``register`` declares an agent's tools to the coordinator, and ``saga_tools`` is the list that the agent gets instead::

    async with Coordinator.open(tools=register(tools, undo={"book": "cancel"})) as coordinator:
        async with coordinator.session("trip") as session:
            with agent.override(tools=saga_tools(session, tools)):
                await agent.run(question)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saga_engine.adapters.results import (
    FETCH,
    FETCH_DESCRIPTION,
    FETCH_SCHEMA,
    RESULT_BYTES,
    check_limit,
    page,
    shown_result,
)
from saga_engine.adapters.tool_adapter import FailedChecks, declared, require_known, specs, words
from saga_engine.errors import CallFailed, CallInvalid, PlanInvalid, SagaError, SettingInvalid, ToolError, ToolInvalid
from saga_engine.plan.model_tools import described
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.runtime.session import Session
from saga_engine.tools.decorator import AnyTool

try:
    from pydantic_ai import ModelRetry, Tool, ToolReturn
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise SettingInvalid("pydantic-ai is not installed", hint="pip install 'saga-engine[pydantic-ai]'") from missing

#: The error code of a tool that asks its model to try again.
_RETRY = "model_retry"


def register(
    tools: Iterable[Any],
    *,
    undo: Mapping[str, Any] | None = None,
    reads: Iterable[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    failed: FailedChecks = None,
) -> list[AnyTool]:
    """An agent's tools (``Tool`` or plain functions) as tools of the coordinator, with names, descriptions and schemas.

    ``undo``: by name, the tool that undoes a call. ``reads``: those that change nothing. ``options``: by name, other
    options of ``tool`` (``keyed``, ``timeout_s``, ``retry``, ...). ``failed``: decides whether a result is an error, as
    with ``tool``; one function for all tools, or functions by name. A tool is run without the agent, so one that takes
    a ``RunContext`` is refused. Raises ``ToolInvalid``, and ``SettingInvalid`` for an unknown name.
    """
    listed = [tool if isinstance(tool, Tool) else Tool(tool) for tool in tools]
    undo, options, reads = undo or {}, options or {}, list(reads)
    require_known([tool.name for tool in listed], undo, reads, options, failed if isinstance(failed, Mapping) else ())
    return [_registered(tool, undo, reads, options, failed) for tool in listed]


def _registered(
    tool: Tool[Any],
    undo: Mapping[str, Any],
    reads: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    failed: FailedChecks,
) -> AnyTool:
    if tool.takes_ctx:
        raise ToolInvalid(
            f"the tool {tool.name!r} takes a RunContext, which a saga that is resumed without its agent cannot give",
            hint="bind what it needs with a closure or functools.partial",
            tool=tool.name,
        )
    schema = tool.function_schema
    no_context: Any = None  # it takes none: see above

    async def call(**params: Any) -> Any:
        try:
            result = await schema.call(schema.validator.validate_python(params), no_context)
        except ModelRetry as retry:
            raise ToolError(retry.message, error_code=_RETRY) from retry
        except ToolFailed as refused:
            raise ToolError(refused.message, error_code="tool_failed") from refused
        return to_jsonable_python(result.return_value if isinstance(result, ToolReturn) else result, fallback=str)

    return declared(call, tool.name, tool.description or "", dict(schema.json_schema), undo, reads, options, failed)


def saga_tools(
    session: Session,
    tools: Iterable[Any],
    *,
    irreversible: Iterable[str] = (),
    offer_undos: bool = False,
    result_bytes: int | None = RESULT_BYTES,
) -> list[Tool[Any]]:
    """Tools for an agent; each of its calls is a call of the session.

    ``tools``: pydantic-ai's, plain functions, or names of the coordinator's; those named in ``irreversible`` write,
    have no undo, and may be called nevertheless. Tools that only undo or probe others are left out unless
    ``offer_undos``: the engine calls them. A call that was not done reaches the model as a failed tool result
    (``ToolFailed``), invalid params as a ``ModelRetry``; an error that the model cannot correct is raised and ends the
    run. A result over ``result_bytes`` (as JSON) reaches the model in its cut form with a reference; the tool
    ``saga_fetch``, which the list then also contains, reads pages of it. None: results are never cut. Raises
    ``ToolMissing`` and ``SettingInvalid``.
    """
    final = set(irreversible)
    found = specs(session.catalog, tools, undos=offer_undos)
    check_limit(result_bytes, [spec.name for spec in found])
    listed = [_offered(session, spec, irreversible=spec.name in final, limit=result_bytes) for spec in found]
    return listed if result_bytes is None else [*listed, _fetching(session, result_bytes)]


def _offered(session: Session, spec: ToolSpec, *, irreversible: bool, limit: int | None) -> Tool[Any]:
    async def call(**params: Any) -> Any:
        try:
            step, output = await session.numbered_call(spec.name, params, irreversible=irreversible)
        except SagaError as error:
            raise _for_the_model(error) from error
        return shown_result(step, output, limit)

    return Tool.from_schema(call, spec.name, described(spec), spec.input_schema)


def _fetching(session: Session, limit: int) -> Tool[Any]:
    async def fetch(ref: str, path: str = "$", offset: int = 0) -> Any:
        try:
            return page(session, ref, path, offset, limit=limit)
        except ToolError as error:
            raise ToolFailed(f"{error.message} ({error.suggestion})") from error

    return Tool.from_schema(fetch, FETCH, FETCH_DESCRIPTION, FETCH_SCHEMA)


def _for_the_model(error: SagaError) -> Exception:
    told = words(error)
    if told is None:
        return error
    mends = isinstance(error, PlanInvalid | CallInvalid)
    again = mends or (isinstance(error, CallFailed) and error.error_code == _RETRY)
    return ModelRetry(told) if again else ToolFailed(told)
