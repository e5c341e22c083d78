"""An agent of AgentScope, whose tools are those of the gateway."""

import asyncio
import os
import sys

from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.mcp import MCPClient, StdioMCPConfig
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import Toolkit


async def main(task: str) -> None:
    gateway = StdioMCPConfig(command="saga", args=["mcp", "--id", "trip-7"])
    saga = MCPClient(name="saga", is_stateful=True, mcp_config=gateway)
    await saga.connect()
    try:
        credential = OpenAICredential(api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"])
        agent = Agent(
            name="travel",
            system_prompt="You book rooms.",
            model=OpenAIChatModel(credential=credential, model="gpt-4.1-mini"),
            toolkit=Toolkit(mcps=[saga]),
            # The gateway asks an operator where the policy says so; AgentScope need not ask about each call.
            state=AgentState(permission_context=PermissionContext(mode=PermissionMode.BYPASS)),
        )
        answer = await agent.reply(UserMsg("user", task))
        print(answer.get_text_content())
    finally:
        await saga.close()


asyncio.run(main(sys.argv[1]))
