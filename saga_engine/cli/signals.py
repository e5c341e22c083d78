"""Common to ``cancel``, ``resolve`` and ``amend``: a message is recorded first, and then the saga continues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga_engine.api import Engine
    from saga_engine.cli.drive import Driven
    from saga_engine.execution.result import SagaResult
    from saga_engine.settings import Settings


def answer(
    saga_id: str,
    post: Callable[[Engine], Awaitable[SagaResult]],
    settings: Settings,
    *,
    what: str,
    as_json: bool,
) -> int:
    """Post the message and resume the saga, which needs its tools; returns the exit code. ``what`` was recorded.

    Raises ``Interrupted``, and ``ToolMissing`` or ``SecretMissing``: the message is recorded, but it cannot go on here.
    """
    from saga_engine.cli.drive import drive_any, driven, finish, stands
    from saga_engine.cli.hints import resume_line
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.progress import Progress
    from saga_engine.cli.words import say
    from saga_engine.errors import Interrupted, SecretMissing, ToolMissing

    registry = registry_for(settings)
    progress = Progress(say("saga", saga=saga_id), {}, saga_id=saga_id)

    async def work(coordinator: Engine) -> Driven:
        progress.start_from((await coordinator.show(saga_id)).body)
        return await driven(coordinator, saga_id, post(coordinator))

    try:
        found = drive_any(settings, registry, work, progress)
    except Interrupted as error:
        raise stands(error, settings, session=progress.session, saga_id=saga_id) from error
    except (ToolMissing, SecretMissing) as error:
        raise type(error)(
            say(f"recorded.{what}", why=error.message),
            hint=say("continue-with", line=resume_line(saga_id, settings, session=progress.session)),
            **error.context,
        ) from error
    return finish(found, settings, as_json=as_json)
