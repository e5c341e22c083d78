"""The command lines that are suggested as the next step."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from saga_engine.cli.output import shown
from saga_engine.cli.words import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.settings import Settings


def resume_line(saga_id: str, settings: Settings, *, session: bool = False) -> str:
    """The command that resumes a saga, ready to type.

    A session continues when its agent runs again; its tools are the agent's, so the hint names no other ones.
    """
    if session and not settings.names_tools:
        return rerun_line(saga_id)
    return " ".join(["saga", "resume", saga_id, *options_line(settings)])


def rerun_line(saga_id: str) -> str:
    """How a session continues."""
    return say("go-on.rerun", saga=saga_id)


def go_on_line(saga_id: str, settings: Settings, *, session: bool = False) -> str:
    """How to continue a saga that a command has left: workers run it, or the next command does."""
    if settings.runtime:
        return say("go-on.follow", line=show_line(saga_id, settings))
    return say("go-on.resume", line=resume_line(saga_id, settings, session=session))


def queued_line(saga_id: str, settings: Settings) -> str:
    """Which processes run a saga that was left to workers."""
    if settings.runtime:
        return say("go-on.queue", queue=repr(settings.task_queue))
    return say("go-on.queued", line=resume_line(saga_id, settings))


def next_line(body: Mapping[str, Any], settings: Settings, *, elsewhere: bool, unread: bool) -> str:
    """How a saga that only was looked at continues; empty if it has ended, or if its questions say it.

    ``elsewhere``: whether a lease covers it; ``unread``: whether a message waits for its next owner.
    """
    saga_id, session = body["saga_id"], "session" in body
    if body["ended_ms"] or (body["questions"] and not unread):
        return ""
    if settings.runtime:
        return say("go-on.both", queued=queued_line(saga_id, settings), line=follow_line(saga_id, settings))
    resume = resume_line(saga_id, settings, session=session)
    if elsewhere:
        return say("go-on.elsewhere", follow=follow_line(saga_id, settings), resume=resume)
    if unread:
        return say("go-on.unread", resume=resume)
    if waits := _only_waits(body):
        return _waiting_line(saga_id, waits, resume, settings)
    return say("go-on.session" if session else "go-on.none", resume=resume)


def _only_waits(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the saga waits for, if nothing else of it can move."""
    moving = ("RUNNING", "IN_DOUBT", "COMPENSATING")
    if any(step["status"] in moving or "next_try_ms" in step for step in body["steps"]):
        return []
    return [{**step["waits"], "came": step.get("came", [])} for step in body["steps"] if "waits" in step]


def _waiting_line(saga_id: str, waits: list[Mapping[str, Any]], resume: str, settings: Settings) -> str:
    """How a saga continues that waits for time or for events: nobody has to resume it before."""
    cancel = command_line(f"cancel {saga_id}", settings)
    return say("go-on.waits", send=_send_line(waits, settings), resume=resume, cancel=cancel)


def awaited_line(body: Mapping[str, Any], settings: Settings) -> str:
    """What a saga that is driven here waits for, and how to send it; "" for one that does not only wait."""
    waits = _only_waits(body)
    if not waits or body["questions"]:
        return ""
    cancel = command_line(f"cancel {body['saga_id']}", settings)
    return say("go-on.here", send=_send_line(waits, settings), cancel=cancel)


def _send_line(waits: list[Mapping[str, Any]], settings: Settings) -> str:
    rest = " ".join(options_line(settings, tools=False))
    events = [
        each
        for wait in waits
        if wait["on"] == "event"
        for each in (wait["about"].get("first") or wait["about"].get("all") or [wait["about"]])
        if each not in wait["came"]
    ]
    commands = [
        f"saga event {shlex.quote(shown(each['event']))} {shlex.quote(shown(each['key']))} '{{…}}' {rest}".rstrip()
        for each in events[:3]
    ]
    if commands:
        return say("send", lines=say("send.or").join(commands))
    children = [str(wait["about"]["saga"]) for wait in waits if wait["on"] == "child"]
    if children:
        lines = ", ".join(show_line(shown(child), settings) for child in children[:3])
        return say("send.child", lines=lines)
    return say("send.time")


def follow_line(saga_id: str, settings: Settings) -> str:
    """The command that follows a saga, as it can be typed here."""
    return f"{show_line(saga_id, settings)} --follow"


def command_line(command: str, settings: Settings, *, tools: bool = False) -> str:
    """A command without an id, as it can be typed here."""
    return " ".join(["saga", command, *options_line(settings, tools=tools)])


def show_line(saga_id: str, settings: Settings) -> str:
    """The command that shows a saga, ready to type."""
    return " ".join(["saga", "show", saga_id, *options_line(settings, tools=False)])


def options_line(settings: Settings, *, tools: bool = True) -> list[str]:
    """The options that a suggested command needs: those of this command line.

    ``tools``: whether that command may have to call tools; a read-only one has no ``--tools``.
    """
    # Values from the environment or saga.toml apply to the next command, too.
    from saga_engine.settings import without_login

    given = sys.argv[1:]
    line: list[str] = []
    if tools and (_named("--tools", given) or not settings.names_tools):
        references = [shlex.quote(shown(reference)) for reference in settings.tools] or ["…"]
        line += [part for reference in references for part in ("--tools", reference)]
    for option, value in (("--runtime", settings.runtime), ("--task-queue", settings.task_queue)):
        if _named(option, given):
            line += [option, shlex.quote(shown(without_login(value)))]
    if _named("--store", given):
        from saga_engine.stores.remote import without_password

        # It may end up in a log: the user fills in the password.
        line += ["--store", shlex.quote(shown(without_password(settings.store)))]
    return line


def _named(option: str, given: list[str]) -> bool:
    return any(part == option or part.startswith(f"{option}=") for part in given)
