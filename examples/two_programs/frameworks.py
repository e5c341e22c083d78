"""Five frameworks, each with plain functions as tools and with those of a session. The model is scripted."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from saga_engine import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "wrapped_agents"))

NAMES = ("langchain", "openai_agents", "pydantic_ai", "google_adk", "strands")
Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]


async def plain(name: str, turns: Turns, functions: Sequence[Callable[..., Any]]) -> None:
    """Run an agent of the framework, as its documentation says, with these functions as its tools."""
    scripted: Any = importlib.import_module(f"with_{name}")
    if name == "langchain":
        from langchain.agents import create_agent

        await create_agent(scripted.scripted(turns), list(functions)).ainvoke({"messages": [("user", "go")]})
    elif name == "openai_agents":
        from agents import Agent, Runner, function_tool

        tools = [function_tool(each) for each in functions]
        await Runner.run(Agent(name="desk", model=scripted.Scripted(turns), tools=tools), "go")
    elif name == "pydantic_ai":
        from pydantic_ai import Agent as PydanticAgent

        await PydanticAgent(scripted.scripted(turns), tools=list(functions)).run("go")
    elif name == "google_adk":
        from google.adk.agents import Agent as AdkAgent
        from google.adk.runners import InMemoryRunner
        from google.genai import types

        model = scripted.Scripted(model="scripted", left=list(turns))
        runner = InMemoryRunner(AdkAgent(name="desk", model=model, tools=list(functions)), app_name="desk")
        await runner.session_service.create_session(app_name="desk", user_id="kim", session_id="one")
        question = types.Content(role="user", parts=[types.Part(text="go")])
        async for _ in runner.run_async(user_id="kim", session_id="one", new_message=question):
            pass
    else:
        import strands

        tools = [strands.tool(each) for each in functions]
        await strands.Agent(model=scripted.Scripted(turns), tools=tools, callback_handler=None).invoke_async("go")


async def in_session(name: str, session: Session, turns: Turns) -> None:
    """Run the same agent with the tools of a session."""
    await importlib.import_module(f"with_{name}").converse(session, turns)
