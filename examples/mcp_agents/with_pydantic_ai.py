"""An agent of pydantic-ai, whose tools are those of the gateway."""

import asyncio
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset


async def main(task: str) -> None:
    saga = MCPToolset(StdioTransport("saga", ["mcp", "--id", "trip-7"]), init_timeout=60, read_timeout=120)
    agent = Agent("openai-chat:gpt-4.1-mini", instructions="You book rooms.", toolsets=[saga])
    async with agent:
        result = await agent.run(task)
    print(result.output)


asyncio.run(main(sys.argv[1]))
