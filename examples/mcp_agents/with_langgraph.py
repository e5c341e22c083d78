"""An agent of LangChain and LangGraph, whose tools are those of the gateway."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


async def main(task: str) -> None:
    gateway = {"transport": "stdio", "command": "saga", "args": ["mcp", "--id", "trip-7"]}
    # One session for the whole task: client.get_tools() would start a gateway for each call.
    async with MultiServerMCPClient({"saga": gateway}).session("saga") as session:
        agent = create_agent("openai:gpt-4.1-mini", await load_mcp_tools(session), system_prompt="You book rooms.")
        result = await agent.ainvoke({"messages": [{"role": "user", "content": task}]})
        print(result["messages"][-1].content)


asyncio.run(main(sys.argv[1]))
