"""The threads in which synchronous tools run."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import textwrap
import threading
import weakref

from saga_engine.core.effects import Done
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import PATIENCE_S, SHORT_S, a_call, call, is_timeout


async def test_context_variables_reach_a_sync_tool_and_do_not_come_back():
    """A thread sees a copy of the caller's context."""
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("caller")

    def act():
        seen = variable.get()
        variable.set("tool")
        return seen

    assert await call(act) == Done("caller")
    assert variable.get() == "caller"


async def test_threads_are_used_again_and_keep_nothing_alive():
    """Calls one after the other share a thread, and an idle thread holds no result."""

    class Result(dict):
        pass

    kept = []
    here = set()

    def act():
        here.add(threading.get_ident())
        result = Result(x=1)
        kept.append(weakref.ref(result))
        return result

    registry = ToolRegistry(act)
    for _ in range(5):
        assert await registry.call("act", {}, a_call()) == Done({"x": 1})
    assert len(here) == 1
    async with asyncio.timeout(PATIENCE_S):
        while any(ref() is not None for ref in kept):
            gc.collect()
            await asyncio.sleep(0)


async def test_many_sync_tools_run_at_once():
    """Twenty calls that all wait for each other end: none waits for a free thread."""
    barrier = threading.Barrier(20, timeout=PATIENCE_S)

    def act():
        barrier.wait()
        return True

    registry = ToolRegistry(act)
    ends = await asyncio.gather(*(registry.call("act", {}, a_call()) for _ in range(20)))
    assert ends == [Done(True)] * 20


def test_an_abandoned_thread_does_not_hold_up_the_end_of_the_process():
    """A process whose tool hangs in a thread for ever ends all the same."""
    program = """
        import asyncio, threading
        from saga_engine.ports import Call
        from saga_engine import tool
        from saga_engine.tools.registry import ToolRegistry

        @tool(late_s=0)
        def hang():
            threading.Event().wait()

        registry = ToolRegistry(hang)
        call = Call("s", "1", "forward", 1, "k", 1, None, 0.001)
        print(asyncio.run(registry.call("hang", {}, call)).error.error_code)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "timeout"), ended.stderr


def test_a_late_answer_to_a_closed_loop_is_harmless():
    """The loop may have ended before the thread does."""
    go, ended = threading.Event(), threading.Event()
    raised = []
    hook = threading.excepthook
    threading.excepthook = raised.append

    @tool(late_s=0)
    def act():
        go.wait(PATIENCE_S)
        ended.set()

    try:
        assert is_timeout(asyncio.run(call(act, timeout_s=SHORT_S)))
        go.set()
        assert ended.wait(PATIENCE_S)
        # The same thread serves again: it has survived the delivery to nobody.
        assert asyncio.run(call(lambda_tool)) == Done(1)
    finally:
        threading.excepthook = hook
    assert not raised


lambda_tool = tool(lambda: 1, name="one")
