"""The tools of MCP servers (Model Context Protocol), declared in ``saga.toml`` or in Python.

``manifest`` reads the tables, ``pins`` keeps the tools that an operator accepted, ``server`` makes engine tools of
them. ``connection`` keeps one server connected over ``stdio`` or ``http``; ``call`` makes a call and ``results`` reads
its answer. The package ``mcp`` is imported with the first connection.
"""

from saga_engine.sources.mcp.server import McpServer, mcp_servers

__all__ = ["McpServer", "mcp_servers"]
