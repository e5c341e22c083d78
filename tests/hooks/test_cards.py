"""Cards for chats: the vendors' limits, foreign text, signatures and answers; sent to a real server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
import tomllib
from itertools import product
from typing import Any
from urllib.parse import parse_qs

import pytest

from saga_engine.errors import AlertUndelivered, SettingInvalid
from saga_engine.hooks.card_hook import CardHook
from saga_engine.hooks.cards import FORMS, LIMITS, encoded, fitted, message
from saga_engine.hooks.config import hooks_from, links_from
from saga_engine.hooks.links import Links
from saga_engine.language import LANGUAGES
from saga_engine.ports import Question
from saga_engine.testing.faulty_http import MisbehavingServer, done, refused
from tests.hooks.questions import a_question

KEY = "k" * 40
LINKS = Links("https://saga.example.com", KEY)
WELL = {"slack": {}, "feishu": {"code": 0, "msg": "success"}, "dingtalk": {"errcode": 0}, "wecom": {"errcode": 0}}
HOSTILE = (
    "</at><at id=all></at> <!channel> <@U1> @all **[Approve](https://evil.example/x)** ![x](http://evil.example) "
    "https://evil.example www.evil.example & \r\n# title\n> quote `code` \u202e \x00"
)


def approval(**changes: Any) -> Question:
    given: dict[str, Any] = {"kind": "approval", "options": ("approve", "deny"), "error": None, "tool": "pay"}
    return a_question(**given | {"params": {"amount": 4200}, "expires_ms": 4_000_000_000_000} | changes)


def texts(value: Any) -> list[str]:
    """All texts of a message that come from a question: links and the names of the form's parts are ours."""
    if isinstance(value, dict):
        return [each for name, part in value.items() if name not in ("url", "actionURL") for each in texts(part)]
    if isinstance(value, list):
        return [each for part in value for each in texts(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("form", FORMS)
def test_a_card_in_chinese(form: str) -> None:
    """All words of its own are Chinese, the texts of others and the links are the same; reminders and undos, too."""
    body = message(approval(), LINKS, "ops", form, "zh")
    assert [name for name, _ in buttons(form, body)] == ["批准", "拒绝", "打开"]
    assert LINKS.read(buttons(form, body)[0][1].rpartition("/")[2]).option == "approve"
    said = "\n".join(texts(body))
    assert "是否允许进行该调用？" in said
    assert "截至" in said
    assert "4200" in said
    again = approval(round=2, direction="compensate", undo_call={"number": 0, "of": 3}, kind="undo-failed")
    said = "\n".join(texts(message(again, LINKS, "ops", form, "zh")))
    assert "撤销" in said
    assert "第 2 次提醒" in said or form == "wecom"  # a line of 30 characters
    english = re.compile("approve|deny|open|goal|step |known|until|call|reminder", re.IGNORECASE)
    ours = said.replace(again.goal, "").replace(str(again.step_id), "").replace(again.tool, "")
    assert english.findall(ours) == []


def buttons(form: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    """The buttons of a message, as a reader sees them."""
    if form == "slack":
        return [(each["text"]["text"], each["url"]) for each in body["blocks"][2]["elements"]]
    if form == "feishu":
        return [(each["text"]["content"], each["url"]) for each in body["card"]["elements"][1]["actions"]]
    if form == "dingtalk":
        return [(each["title"], each["actionURL"]) for each in body["actionCard"]["btns"]]
    return [(each["title"], each["url"]) for each in body["template_card"]["jump_list"]]


@pytest.mark.parametrize("form", FORMS)
def test_a_card_asks_and_has_a_button_for_each_answer(form: str) -> None:
    """Approve, deny and the console; each button's link is that of its own answer."""
    found = buttons(form, message(approval(), LINKS, "ops", form))
    assert [name for name, _ in found] == ["Approve", "Deny", "Open"]
    read = [LINKS.read(url.rpartition("/")[2]) for _, url in found[:2]]
    assert [(each.option, each.to, each.question_id) for each in read] == [
        ("approve", "ops", "hotel:f:1"),
        ("deny", "ops", "hotel:f:1"),
    ]
    assert found[2][1] == "https://saga.example.com/ui/sagas/trip-42"
    assert "4200" in json.dumps(message(approval(), LINKS, "ops", form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sign", ["x", "旅", "🧳", '"', "\u202e"])
def test_no_card_exceeds_what_its_vendor_takes(form: str, sign: str) -> None:
    """With texts of any length, of any alphabet, with more options than buttons, in UTF-16 units and in bytes."""
    limits = LIMITS[form]
    options = tuple(f"{number}{sign * 60}" for number in range(30))
    asked = a_question(
        saga_id="s" * 128,
        question_id="q" * 70,
        step_id="t" * 64,
        step_name=sign * 900,
        tool="l" * 128,
        kind="ask",
        options=options,
        text=sign * 9000,
        goal=sign * 9000,
        error={"error_code": "e" * 300, "message": sign * 9000},
        params={"p": sign * 9000},
        steps=[{"tool": "x", "params": {"p": sign * 3000}}] * 30,
        round=7,
    )
    questions = (asked, approval(goal=sign * 9000, params={"p": sign * 9000}), a_question(text=sign * 9000))
    for question, language in product(questions, LANGUAGES):
        body = message(question, LINKS, "r" * 40, form, language)
        assert len(encoded(body)) + 200 <= limits.message_bytes  # and a signature
        shown = buttons(form, body)
        assert 1 <= len(shown) <= limits.buttons
        assert all(units(name) <= limits.button and len(url) <= limits.url for name, url in shown)
        assert all(units(text) <= most for text, most in limited(form, body))


def limited(form: str, body: dict[str, Any]) -> list[tuple[str, int]]:
    """The texts of a message with the vendor's limits, as documented."""
    if form == "slack":
        header, section, _ = body["blocks"]
        return [(header["text"]["text"], 150), (section["text"]["text"], 3000)]
    if form == "feishu":
        return [(body["card"]["header"]["title"]["content"], 150)]
    if form == "dingtalk":
        return [(body["actionCard"]["title"], 64), (body["actionCard"]["text"], 1000)]
    card = body["template_card"]
    rows = card["horizontal_content_list"]
    assert len(rows) <= 6
    return [
        (card["main_title"]["title"], 26),
        (card["main_title"]["desc"], 30),
        (card["sub_title_text"], 112),
        *((row["keyname"], 5) for row in rows),
        *((row["value"], 26) for row in rows),
    ]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_a_text_is_cut_between_characters() -> None:
    """Never within a pair of units, never longer than asked."""
    assert fitted("🧳🧳", 4) == "🧳🧳"
    assert fitted("🧳🧳", 3) == "🧳…"
    assert fitted("a🧳b", 3) == "a…"


@pytest.mark.parametrize("form", FORMS)
def test_foreign_text_mentions_nobody_and_makes_no_link(form: str) -> None:
    """A goal, a param, an error or an option cannot call the channel, nor put a button of its own beside ours."""
    asked = a_question(
        kind="ask", options=(HOSTILE[:120], "no"), text=HOSTILE, goal=HOSTILE, error={"message": HOSTILE}
    )
    for question in (asked, approval(goal=HOSTILE, params={HOSTILE: HOSTILE}, step_name=HOSTILE, tool=HOSTILE)):
        body = message(question, LINKS, "ops", form)
        for text in texts(body):
            assert "://" not in text
            assert "www." not in text
            assert "@all" not in text
            assert "<!" not in text
            assert "<@" not in text
            assert all(sign.isprintable() or sign in "\n\u200b" for sign in text)
            if form == "dingtalk" and text.startswith("###"):
                foreign = text.removeprefix("###").replace("**", "")  # ours: the heading and the names of facts
                assert not set("[]<>*`~!#|") & set(foreign)
        if form == "slack":
            assert not set("<>") & set(body["text"])
            assert {block["text"]["type"] for block in body["blocks"][:2]} == {"plain_text"}
        if form == "feishu":
            assert "lark_md" not in json.dumps(body)


@pytest.mark.parametrize("form", FORMS)
async def test_a_card_is_sent_and_the_chats_own_word_counts(form: str) -> None:
    """Delivered is what the chat says; a robot's refusal with status 200 is a failure with its code and a hint."""
    async with MisbehavingServer() as server:
        url = f"{server.url}/hook/t0ken?key=t0ken"
        server.script("/hook/t0ken", done(WELL[form]))
        await CardHook(url, form, LINKS, to="ops")(approval())
        request = server.received[-1]
        assert (request.method, request.query) == ("POST", "key=t0ken")
        assert request.headers["content-type"] == "application/json"
        assert [name for name, _ in buttons(form, request.json)] == ["Approve", "Deny", "Open"]
        server.script("/hook/t0ken", refused(404))
        with pytest.raises(AlertUndelivered, match="answered 404"):
            await CardHook(url, form, LINKS)(approval())
        if form == "slack":
            return
        server.script("/hook/t0ken", done({"code": 19021, "errcode": 310000, "errmsg": "t0ken"}))
        with pytest.raises(AlertUndelivered, match=r"code (19021|310000)") as raised:
            await CardHook(url, form, LINKS)(approval())
        assert "t0ken" not in str(raised.value)
        server.script("/hook/t0ken", done({"html": "moved"}))
        with pytest.raises(AlertUndelivered, match="no code"):
            await CardHook(url, form, LINKS)(approval())


async def test_a_robots_signature_is_the_one_that_its_vendor_computes() -> None:
    """Feishu signs nothing with the time and the key as key, in the body; DingTalk signs both, in the query."""
    async with MisbehavingServer() as server:
        server.script("/hook", done({"code": 0, "errcode": 0}))
        await CardHook(f"{server.url}/hook", "feishu", LINKS, secret="fs")(approval())
        await CardHook(f"{server.url}/hook?access_token=t", "dingtalk", LINKS, secret="SECd")(approval())
    feishu, dingtalk = server.received
    stamp = feishu.json["timestamp"]
    made = base64.b64encode(hmac.new(f"{stamp}\nfs".encode(), digestmod=hashlib.sha256).digest()).decode()
    assert feishu.json["sign"] == made
    assert abs(int(stamp) - time.time()) < 600
    query = {name: value for name, (value,) in parse_qs(dingtalk.query).items()}
    signed = f"{query['timestamp']}\nSECd".encode()
    assert query["access_token"] == "t"
    assert query["sign"] == base64.b64encode(hmac.new(b"SECd", signed, hashlib.sha256).digest()).decode()
    assert abs(int(query["timestamp"]) / 1000 - time.time()) < 600


# --- settings ------------------------------------------------------------------------------------------------------

TABLE = """
[links]
url = "https://saga.example.com/"
key = ["$secret.NEW", "$secret.OLD"]
life_s = 600
tenant = "blue"

[[hooks]]
kind = "webhook"
form = "feishu"
url = "https://open.feishu.cn/open-apis/bot/v2/hook/$secret.HOOK"
secret = "$secret.SIGN"
recipient = "ops"
language = "zh"
"""
ENVIRON = {"NEW": "n" * 40, "OLD": "o" * 40, "HOOK": "t0ken", "SIGN": "s"}


def test_a_card_and_its_links_are_settings(tmp_path) -> None:
    """The keys come from the environment, or from a file with one in each line."""
    table = tomllib.loads(TABLE)
    (hook,) = hooks_from(table, source="saga.toml", environ=ENVIRON).hooks
    assert isinstance(hook, CardHook)
    assert repr(hook) == "CardHook(feishu, open.feishu.cn)"
    assert hook.language == "zh"
    (own,) = hooks_from(table, source="saga.toml", environ=ENVIRON, language="en").hooks
    (unnamed,) = hooks_from(
        tomllib.loads(TABLE.replace('language = "zh"', "")), source="saga.toml", environ=ENVIRON, language="zh"
    ).hooks
    assert (own.language, unnamed.language) == ("zh", "zh")  # type: ignore[attr-defined]
    links = links_from(table, source="saga.toml", environ=ENVIRON)
    assert links is not None
    assert (links.url, links.life_s, links.tenant) == ("https://saga.example.com", 600, "blue")
    (tmp_path / "keys").write_text(f"{'n' * 40}\n{'o' * 40}\n")
    from_file = links_from(
        {"links": {"url": "https://saga.example.com", "key_file": "keys"}}, source="saga.toml", base=tmp_path
    )
    assert from_file is not None
    url = links.of(approval(), "ops")["approve"]
    assert from_file.read(url.rpartition("/")[2]).tenant == "blue"
    assert links_from({}, source="saga.toml") is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('form = "feishu"', 'form = "teams"', "cannot be 'teams'"),
        ('form = "feishu"', 'form = "slack"', "has no secret"),
        ('form = "feishu"', "", "is that of a card"),
        ('language = "zh"', 'language = "fr"', "cannot be 'fr'"),
        ('secret = "$secret.SIGN"', 'secret = "s"', "stands in the file"),
        ('secret = "$secret.SIGN"', 'secret = ["$secret.SIGN", "$secret.NEW"]', "is one"),
        ('recipient = "ops"', 'recipient = "a b"', "is no name"),
        ('"$secret.NEW"', '"$secret.SIGN"', "less than 32"),
        ('"$secret.NEW"', f'"{"n" * 40}"', "stands in the file"),
        ("life_s = 600", 'key_file = "keys"', "and not both"),
        ("life_s = 600", "life_s = 1", "seconds"),
        ('url = "https://saga.example.com/"', "", "url of .escalation.links"),
        ('tenant = "blue"', 'tenants = "blue"', "did you mean tenant"),
    ],
)
def test_a_wrong_setting_of_cards_is_refused_at_start(old: str, new: str, words: str) -> None:
    """With the table, the field and what to write."""
    assert old in TABLE
    with pytest.raises(SettingInvalid) as raised:
        hooks_from(tomllib.loads(TABLE.replace(old, new, 1)), source="saga.toml", environ=ENVIRON)
    assert words.replace(".escalation.", "[escalation.").split("[")[0] in f"{raised.value} {raised.value.hint}"
    assert "n" * 40 not in str(raised.value)


def test_without_keys_nobody_gets_links() -> None:
    """A card, or a reader of links, without [escalation.links] is refused at start."""
    for table in ({"form": "slack"}, {"recipient": "ops", "secret": "$secret.SIGN"}):
        hook = {"kind": "webhook", "url": "https://example.com", **table}
        with pytest.raises(SettingInvalid, match=r"\[escalation.links\]"):
            hooks_from({"hooks": [hook]}, source="saga.toml", environ=ENVIRON)
