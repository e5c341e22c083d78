"""An agent without a framework: the loop that all of them have, over the official MCP client."""

import asyncio
import json
import os
import sys
import urllib.request

from mcp import Client, StdioServerParameters


def asked(messages, tools):
    body = json.dumps({"model": "scripted", "messages": messages, "tools": tools}).encode()
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]


async def main(task):
    parameters = StdioServerParameters(command="saga", args=["mcp", "--id", "trip-7"], env={"PATH": os.environ["PATH"]})
    async with Client(parameters, cache=None) as client:
        listed = (await client.list_tools()).tools
        tools = [
            {"type": "function", "function": {"name": each.name, "parameters": each.input_schema}} for each in listed
        ]
        messages = [{"role": "user", "content": task}]
        while True:
            said = await asyncio.to_thread(asked, messages, tools)
            messages.append(said)
            if not said.get("tool_calls"):
                print(said["content"])  # noqa: T201 - the agent's answer
                return
            for call in said["tool_calls"]:
                function = call["function"]
                answer = await client.call_tool(function["name"], json.loads(function["arguments"]))
                text = "\n".join(block.text for block in answer.content if block.type == "text")
                if not text:
                    text = json.dumps(answer.structured_content)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


asyncio.run(main(sys.argv[1]))
