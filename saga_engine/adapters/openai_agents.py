"""OpenAI Agents SDK: the coordinator's tools for an ``Agent``, each call a call of a session.

::

    async with coordinator.session("trip") as session:
        agent = Agent(name="travel", tools=saga_tools(session))
        await Runner.run(agent, question)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from saga_engine.adapters.routing import Offered, Router
from saga_engine.errors import SagaError, SettingInvalid
from saga_engine.runtime.session import Session

try:
    from agents import AgentsException, FunctionTool
except ImportError as missing:
    raise SettingInvalid(
        "the OpenAI Agents SDK is not installed", hint="pip install 'saga-engine[openai-agents]'"
    ) from missing


def saga_tools(session: Session, names: Iterable[str] | None = None, **options: Any) -> list[FunctionTool]:
    """The coordinator's tools, all but those that only undo or probe others, or the named ones.

    ``options`` are those of ``routing.Router``. A call that was not done reaches the model as ``{"error": ...}``. What
    the model cannot mend is raised and ends the run.
    """
    return [_function_tool(each) for each in Router(session, **options).offered(names)]


def _function_tool(offered: Offered) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> str:
        try:
            return (await offered.call(arguments)).content
        except SagaError as error:
            raise _known(error) from error

    return FunctionTool(
        name=offered.name,
        description=offered.description,
        params_json_schema=offered.schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def _known(error: SagaError) -> SagaError:
    """The same error as one of the SDK's own: it gives every other one another name.

    The session could then not tell that its agent waits for an operator.
    """
    kind = type(error)
    made = type(kind.__name__, (kind, AgentsException), {"__module__": kind.__module__})
    copy: SagaError = made.__new__(made, *error.args)
    copy.__dict__.update({"run_data": None, **error.__dict__})
    return copy
