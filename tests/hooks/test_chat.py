"""The apprise hook, against a local server that takes apprise's ``json://`` messages."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from saga_engine.errors import AlertUndelivered, SettingInvalid
from saga_engine.hooks.chat import AppriseHook
from saga_engine.hooks.messages import body, title
from saga_engine.testing.faulty_http import MisbehavingServer, done, held, refused
from tests.hooks.questions import a_question


def urls(server: MisbehavingServer, *paths: str) -> list[str]:
    return [f"json://127.0.0.1:{server.port}{path}" for path in paths]


async def test_everybody_gets_title_and_body_in_plain_words() -> None:
    """Each URL gets one message: what is asked, what is known, and the command lines that answer."""
    async with MisbehavingServer() as server:
        server.script("/a", done())
        server.script("/b", done())
        await AppriseHook(urls(server, "/a", "/b"))(a_question())
    assert sorted(request.path for request in server.received) == ["/a", "/b"]
    for request in server.received:
        assert request.json["title"] == title(a_question())
        assert request.json["message"] == body(a_question())
        assert "saga resolve trip-42 hotel not-happened" in request.json["message"]


async def test_one_that_fails_keeps_nobody_from_being_told() -> None:
    """The others are told; the error names the one that was not by number and service, and no URL."""
    async with MisbehavingServer() as server:
        server.script("/t0ken", refused(500))
        server.script("/b", done())
        with pytest.raises(AlertUndelivered) as raised:
            await AppriseHook(urls(server, "/t0ken", "/b"))(a_question())
        assert len(server.effects) == 1
    assert raised.value.message == "1 of 2 apprise URLs took no message: 1 (JSON)"
    assert "t0ken" not in repr(raised.value.to_dict())


async def test_one_that_is_silent_is_given_up() -> None:
    """The time limit holds for a service that never answers, and the other is told."""
    async with MisbehavingServer() as server:
        server.script("/a", held("before-answer"))
        server.script("/b", done())
        hook = AppriseHook(urls(server, "/a", "/b"), timeout_s=4.0)
        telling = hook(a_question())
        with pytest.raises(AlertUndelivered, match=r"1 \(JSON: not within 4 s\)"):
            await telling
        assert [effect.request.path for effect in server.effects if effect.request.path == "/b"] == ["/b"]
        server.release()


async def test_a_url_that_apprise_does_not_know_is_refused_unsaid(caplog) -> None:
    """When the hook is made, not when it is needed; and apprise's own log, which quotes the URL, is silent about it."""
    caplog.set_level(logging.DEBUG)
    for bad in ("nonsense://user:t0ken@host/", "tgram://t0ken", ""):
        with pytest.raises(SettingInvalid, match="URL 2 of 2") as raised:
            AppriseHook(["json://127.0.0.1:1/", bad])
        assert "t0ken" not in str(raised.value)
    assert "t0ken" not in caplog.text
    with pytest.raises(SettingInvalid, match="no URL"):
        AppriseHook([])


def test_apprise_is_loaded_only_where_it_is_used() -> None:
    """Neither the rooms nor the building of other hooks import apprise or httpx2: a command must start fast."""
    probe = (
        "import sys, saga_engine.hooks.config as b, saga_engine.hooks.chat, saga_engine.hooks.webhook\n"
        "b.hooks_from({'hooks': [{'kind': 'log'}]}, source='saga.toml')\n"
        "sys.exit(bool({'apprise', 'httpx2', 'httpcore2', 'requests'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
