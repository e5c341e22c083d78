"""The gateway: an MCP server between an agent and its tools, whose calls become calls of a session.

``offer`` lists the tools, ``work`` keeps the session and its life, ``own_tools`` are the engine's own tools,
``answers`` makes protocol answers, ``server`` joins them with the SDK's server, and ``stdio`` carries its messages.
The package ``mcp`` is imported when a gateway starts.
"""
