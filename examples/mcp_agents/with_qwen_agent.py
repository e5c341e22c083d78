"""An agent of Qwen-Agent, whose tools are those of the gateway."""

import os
import sys

from qwen_agent.agents import Assistant

model = {
    "model": "qwen3-max",
    "model_server": os.environ["OPENAI_BASE_URL"],
    "api_key": os.environ["OPENAI_API_KEY"],
    "generate_cfg": {"use_raw_api": True},  # the model's own calls of tools
}
gateway = {"mcpServers": {"saga": {"command": "saga", "args": ["mcp", "--id", "trip-7"]}}}
agent = Assistant(llm=model, system_message="You book rooms.", function_list=[gateway])
*_, messages = agent.run([{"role": "user", "content": sys.argv[1]}])
print(messages[-1]["content"])
