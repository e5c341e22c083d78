"""``[escalation]`` of ``saga.toml``."""

from __future__ import annotations

import logging
import tomllib

import pytest
from standardwebhooks import Webhook

from saga_engine.core.questions import OPTIONS
from saga_engine.errors import SettingInvalid
from saga_engine.hooks.chat import AppriseHook
from saga_engine.hooks.config import KINDS, QuestionFilter, hooks_from
from saga_engine.hooks.log import LogHook
from saga_engine.hooks.webhook import WebhookHook
from saga_engine.ports import Escalation
from saga_engine.settings import load
from saga_engine.testing.faulty_http import MisbehavingServer, done
from tests.hooks.questions import SECRET, a_question

ENVIRON = {"KEY": SECRET, "TOKEN": "t0ken"}


def built(text: str, environ: dict[str, str] = ENVIRON) -> Escalation:
    return hooks_from(tomllib.loads(text), source="saga.toml", environ=environ)


def refusal(text: str) -> SettingInvalid:
    with pytest.raises(SettingInvalid) as raised:
        built(text)
    assert "saga.toml" in raised.value.message
    return raised.value


def test_nothing_said_is_nobody_told() -> None:
    """An hour to the next reminder and a day to the next level, for hooks that come from elsewhere."""
    assert built("") == Escalation((), (), 3600.0, 86400.0) == Escalation()


def test_everything_that_can_be_said(tmp_path) -> None:
    """Hooks of both levels, in order, as settings.py hands the table on."""
    (tmp_path / "saga.toml").write_text(
        """
        [escalation]
        remind_s = 600
        further_after_s = 7200
        payloads = true

        [[escalation.hooks]]
        kind = "log"
        log_level = "error"

        [[escalation.hooks]]
        kind = "webhook"
        url = "https://example.com/$secret.TOKEN"
        secret = ["$secret.KEY"]
        timeout_s = 3
        headers = { Authorization = "Bearer $secret.TOKEN" }
        kinds = ["approval"]

        [[escalation.hooks]]
        kind = "apprise"
        level = 2
        urls = ["json://127.0.0.1:1/$secret.TOKEN"]
        """
    )
    settings = load({}, cwd=tmp_path, environ={})
    escalation = hooks_from(settings.escalation, source=settings.file_name, environ=ENVIRON)
    assert (escalation.remind_s, escalation.further_after_s, escalation.payloads) == (600.0, 7200.0, True)
    log, webhook = escalation.hooks
    assert isinstance(log, LogHook)
    assert log.level == logging.ERROR
    assert isinstance(webhook, QuestionFilter)
    assert isinstance(webhook.hook, WebhookHook)
    assert (webhook.kinds, webhook.hook.host, webhook.hook.timeout_s) == ({"approval"}, "example.com", 3.0)
    assert isinstance(escalation.further[0], AppriseHook)
    assert "t0ken" not in repr(escalation)


async def test_secrets_are_those_of_the_environment() -> None:
    """In the URL, in the headers, and what the request is signed with."""
    async with MisbehavingServer() as server:
        server.script("/t0ken", done())
        escalation = built(
            f"""
            [[hooks]]
            kind = "webhook"
            url = "{server.url}/$secret.TOKEN"
            secret = "$secret.KEY"
            headers = {{ X-Key = "k $secret.TOKEN" }}
            """
        )
        await escalation.hooks[0](a_question())
    (request,) = server.received
    assert request.headers["x-key"] == "k t0ken"
    Webhook(SECRET).verify(request.body, dict(request.headers))


async def test_a_hook_is_told_the_kinds_that_it_wants() -> None:
    """Others count as delivered: they must not be tried again."""
    told = []

    async def hook(question) -> None:
        told.append(question.kind)

    for kind in KINDS:
        await QuestionFilter(hook, ["approval", "in-doubt"])(a_question(kind=kind))
    assert sorted(told) == ["approval", "in-doubt"]
    assert set(KINDS) > set(OPTIONS)


WEBHOOK = '[[hooks]]\nkind = "webhook"\nurl = "https://example.com/"\nsecret = "$secret.KEY"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("remind = 5", "remind of"),
        ('remind_s = "5"', "remind_s"),
        ("remind_s = true", "remind_s"),
        ("remind_s = -1", "remind_s"),
        ("remind_s = 0.5", "remind_s"),
        ("remind_s = nan", "remind_s"),
        ("remind_s = inf", "remind_s"),
        ("hooks = 5", "hooks"),
        ("payloads = 1", "payloads"),
        ("hooks = [5]", "number 1"),
        ("[[hooks]]", "kind"),
        ('[[hooks]]\nkind = "smoke"', "'smoke'"),
        ('[[hooks]]\nkind = "log"\nlevel = 3', "level"),
        ('[[hooks]]\nkind = "log"\nlevel = true', "level"),
        ('[[hooks]]\nkind = "log"\nlog_level = "loud"', "'loud'"),
        ('[[hooks]]\nkind = "log"\nkinds = ["aproval"]', "'aproval'"),
        ('[[hooks]]\nkind = "log"\nkinds = []', "kinds"),
        ('[[hooks]]\nkind = "log"\nurl = "https://example.com/"', "url"),
        ('[[hooks]]\nkind = "webhook"', "URL"),
        ('[[hooks]]\nkind = "webhook"\nurl = "https://example.com/"', "secret"),
        (WEBHOOK + "timeout = 5", "timeout of"),
        (WEBHOOK + "timeout_s = 0", "timeout_s"),
        (WEBHOOK + "headers = { X = 1 }", "headers"),
        ('[[hooks]]\nkind = "apprise"', "no URL"),
        ('[[hooks]]\nkind = "apprise"\nurls = 5', "urls"),
        ('[[hooks]]\nkind = "apprise"\nurls = ["nonsense://x"]', "URL 1 of 1"),
        ('further_after_s = 0\n[[hooks]]\nkind = "log"\nlevel = 2', "further_after_s"),
        ('remind_s = 0\n[[hooks]]\nkind = "log"\nlevel = 2', "remind_s"),
        ('[[hooks]]\nkind = "log"\nlevel = 2', "level 2 alone"),
    ],
)
def test_what_means_nothing_is_refused(text: str, said: str) -> None:
    """A typing error here is a person who is never told; the message names field and hook."""
    assert said in refusal(text).message


def test_zero_is_never() -> None:
    """No reminders and no second level."""
    escalation = built("remind_s = 0\nfurther_after_s = 0")
    assert (escalation.remind_s, escalation.further_after_s) == (0.0, 0.0)


def test_a_variable_that_is_not_set_is_found_at_once() -> None:
    """Not when somebody has to be told."""
    with pytest.raises(SettingInvalid, match="needs KEY") as raised:
        built(WEBHOOK, {})
    assert raised.value.hint == "set KEY"


def test_a_secret_in_the_file_is_refused_unsaid() -> None:
    """Files are committed; the message does not repeat the secret."""
    error = refusal(WEBHOOK.replace("$secret.KEY", SECRET))
    assert "environment" in str(error)
    assert SECRET not in str(error)
