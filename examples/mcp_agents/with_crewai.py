"""A crew of CrewAI, whose tools are those of the gateway."""

import sys

from crewai import Agent, Crew, Task
from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters

with MCPServerAdapter(StdioServerParameters(command="saga", args=["mcp", "--id", "trip-7"])) as tools:
    agent = Agent(
        role="travel desk", goal="book what is asked for", backstory="You book rooms.", llm="gpt-4.1-mini", tools=tools
    )
    task = Task(description=sys.argv[1], expected_output="what was booked", agent=agent)
    print(Crew(agents=[agent], tasks=[task]).kickoff())
