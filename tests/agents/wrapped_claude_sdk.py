"""An agent of the Claude Agent SDK for the conformance suite: the SDK's own Claude Code, before a scripted endpoint."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ToolResultBlock, UserMessage

from saga_engine import Session
from saga_engine.adapters.claude_sdk import SagaClaude
from tests.agents.model import Model, serving

Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]


async def converse(session: Session, turns: Turns) -> list[str]:
    """What the model was told of each call."""
    saga = SagaClaude(session)
    told: list[str] = []
    with (
        serving(Model([*[call for turn in turns for call in turn], "done"])) as url,
        tempfile.TemporaryDirectory() as home,
    ):
        options = ClaudeAgentOptions(
            mcp_servers={"saga": saga.server()},
            can_use_tool=saga.permit,
            tools=[],
            strict_mcp_config=True,
            setting_sources=[],
            cwd=home,
            env={
                "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
                "ANTHROPIC_API_KEY": "sk-scripted",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "HOME": home,
                "CLAUDE_CONFIG_DIR": str(Path(home) / "claude"),
                "NO_PROXY": "127.0.0.1",
                "PATH": os.environ["PATH"],
            },
        )
        async with ClaudeSDKClient(options) as client:
            await client.query("a trip")
            async for message in client.receive_response():
                if isinstance(message, UserMessage) and isinstance(message.content, list):
                    told += [_text(block) for block in message.content if isinstance(block, ToolResultBlock)]
    return [each for each in told if "looked_" not in each]


def _text(block: ToolResultBlock) -> str:
    if isinstance(block.content, str):
        return block.content
    return " ".join(str(part.get("text", "")) for part in block.content or ())
