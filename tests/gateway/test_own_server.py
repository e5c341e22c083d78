"""The server and the manifest of the page for people who write servers."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from saga_engine.sources.mcp import McpServer
from tests.docs.pages import blocks
from tests.gateway.agents import about, agent, engine


async def test_the_server_of_the_page_is_undone(tmp_path: Path) -> None:
    """Its bookings are undone, its refusal is no doubt, and the agent does not see the key."""
    code, table = (block.body for block in blocks("py", "toml") if block.page.name == "mcp.md" and "inn" in block.body)
    file = tmp_path / "inn.py"
    file.write_text(code)
    fields = tomllib.loads(table)["mcp"]["inn"]
    assert fields["command"] == ["python", "inn.py"]
    source = McpServer("inn", command=[sys.executable, str(file)], tools=fields["tools"])
    async with engine(source) as coordinator, agent(coordinator) as it:
        listed = {each.name: each for each in (await it.client.list_tools()).tools}
        assert [*listed["book"].input_schema["properties"]] == ["guest"]
        booked = await it.done("book", guest="Ann")
        assert about(await it.call("cancel", **booked))["call"] == "2"
        assert (await it.refused("cancel", id="none")).startswith("mcp_error:")
        assert "happen" not in await it.refused("cancel", id="none")
        await it.done("book", guest="Bo")  # the first booking was taken back by the agent itself
        told = await it.call("saga_rollback")
        assert [each["tool"] for each in told.structured_content["undone"]] == ["inn.book"]
