"""Sensitive params on the command line, also on a machine that has none of the tools."""

from __future__ import annotations

TOOLS = """
from saga_engine import ToolError, tool

@tool(undo="back")
async def pay(card: str, amount: int) -> dict:
    with open("world", "a") as world:
        world.write(f"{card}\\n")
    return {"echo": f"card {card}"}

@tool
async def back(card: str) -> dict:
    return {}

@tool(undo="back")
async def fail(card: str) -> dict:
    raise ToolError(f"no luck with {card}", error_code="refused")
"""
CARD = "4111-2222-3333-4444"


def test_no_command_shows_a_sensitive_value(cli) -> None:
    """Law: submit with its progress and log, show, history, list, inbox and trace; the last ones without the tools."""
    (cli.folder / "tools.py").write_text(TOOLS)
    settings = '[saga]\ntools = ["tools.py"]\n'
    (cli.folder / "saga.toml").write_text(f'{settings}[tools.pay]\nsensitive = ["card"]\n')
    steps = [{"tool": "pay", "params": {"card": CARD, "amount": 5}}, {"tool": "fail", "params": {"card": CARD}}]
    cli.plan("p.json", *steps, task_id="p", goal=f"pay with {CARD}")

    said = [cli("submit", "p.json", "--log-level", "debug")]
    assert said[0].code == 3, said[0].err
    assert (cli.folder / "world").read_text() == f"{CARD}\n"
    (cli.folder / "saga.toml").unlink()
    (cli.folder / "tools.py").unlink()
    for command in ("show", "history"):
        said += [cli(command, "p", *options) for options in ((), ("--json",), ("--full",), ("--full", "--json"))]
    said += [cli("list"), cli("list", "--json"), cli("inbox"), cli("graph", "p"), cli("trace", "export", "p")]

    for ran in said:
        assert CARD not in ran.out + ran.err
    assert "[redacted]" in said[1].out
