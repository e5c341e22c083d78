"""An agent of the OpenAI Agents SDK, whose tools are those of the gateway."""

import asyncio
import sys

from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled
from agents.mcp import MCPServerStdio

set_default_openai_api("chat_completions")  # for models of other makers
set_tracing_disabled(True)


async def main(task: str) -> None:
    gateway = {"command": "saga", "args": ["mcp", "--id", "trip-7"]}
    async with MCPServerStdio(params=gateway, client_session_timeout_seconds=120) as saga:
        agent = Agent(name="travel", instructions="You book rooms.", model="gpt-4.1-mini", mcp_servers=[saga])
        result = await Runner.run(agent, task)
        print(result.final_output)


asyncio.run(main(sys.argv[1]))
