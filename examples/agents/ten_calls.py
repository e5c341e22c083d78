"""Nine of ten calls are done, and the tenth has a wrong path: mended and run again, the agent does nothing twice.

No model and no key: the agent is a loop. Each call creates a file, and creating one that exists is an error.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from saga_engine import CallFailed, Coordinator, RetryPolicy, ToolError, tool

ONCE = RetryPolicy(max_attempts=1)


@tool(undo="remove", retry=ONCE)
def create(path: str, text: str) -> dict[str, str]:
    """Create a file."""
    if not Path(path).parent.is_dir():
        raise ToolError(f"there is no folder {Path(path).parent.name}", error_code="not_found", retryable=False)
    with Path(path).open("x", encoding="utf-8") as file:  # it must not exist
        file.write(text)
    print(f"  created {Path(path).name}")
    return {"path": path}


@tool(retry=ONCE)
def remove(path: str) -> None:
    """Remove a file."""
    Path(path).unlink()
    print(f"  removed {Path(path).name}")


async def life(store: str, folder: Path, last: str) -> None:
    """One life of the agent, in a coordinator of its own as in a process of its own."""
    async with (
        Coordinator.open(store, [create, remove], on_escalation=()) as coordinator,
        coordinator.session("ten-files", goal="ten files", on_failure="keep") as session,
    ):
        for number in range(1, 10):
            await session.call(create, path=str(folder / f"{number}.txt"), text="right")
        await session.call(create, path=str(folder / last), text="right")


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name) / "files", f"embedded://{name}/saga"
        folder.mkdir()
        print("First life:")
        try:
            await life(store, folder, "wrong/10.txt")
        except CallFailed as error:
            print(f"  the agent failed: {error.message}")
            print(f"  {error.__notes__[0]}")
        print("Mended:")
        await life(store, folder, "10.txt")
        async with Coordinator.open(store, [create, remove]) as coordinator:
            outcome = await coordinator.show("ten-files")
        print(f"  the saga is {outcome.status}, and there are {len(list(folder.iterdir()))} files")


if __name__ == "__main__":
    asyncio.run(main())
