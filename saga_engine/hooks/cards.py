"""Questions as cards of chats: Slack (Block Kit), Feishu, DingTalk (ActionCard) and WeCom (template card).

Each form keeps the limits that its vendor documents (``LIMITS``), and shows foreign text as text: goals, params, errors
and options come from models and from the network. They mention no one, contain no link and no markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from saga_engine.core.outlooks import then_words
from saga_engine.hooks.card_words import CardWords
from saga_engine.hooks.links import Links
from saga_engine.hooks.messages import moment, proposed, quoted
from saga_engine.language.errors import translated
from saga_engine.ports import Question


class Limits(NamedTuple):
    """What a vendor takes: characters (UTF-16 units, the strictest reading) and bytes of the whole message.

    ``buttons``: how many, with the one that opens the console. ``url``: a longer link is left out.
    """

    title: int
    body: int
    button: int
    buttons: int
    url: int
    message_bytes: int


#: Slack: docs.slack.dev/reference/block-kit (header 150, section 3000, button 75, its url 3000, 25 elements).
#: Feishu: a custom bot's request has at most 20 KB; no other limit is documented, and more would not be read.
#: DingTalk: a message has at most 20,000 bytes; an ActionCard's title 64, text 1,000, button 20, its address 500.
#: WeCom: a text notice's title 26, text 112, link 13, three links; an address 2,048 bytes.
LIMITS: Final[Mapping[str, Limits]] = {
    "slack": Limits(150, 3000, 75, 5, 3000, 100_000),
    "feishu": Limits(150, 3000, 40, 5, 2048, 20_000),
    "dingtalk": Limits(64, 1000, 20, 5, 500, 20_000),
    "wecom": Limits(26, 112, 13, 3, 2048, 20_000),
}
FORMS: Final = tuple(LIMITS)
#: Of a text notice of WeCom: its second line, the name and the value of a fact, and how many facts.
_WECOM_DESC: Final = 30
_WECOM_NAME: Final = 5
_WECOM_VALUE: Final = 26
_WECOM_FACTS: Final = 6
_WECOM_QUOTE: Final = 400
_PARAMS_CHARS: Final = 1500
_GOAL_CHARS: Final = 300
#: What chats make a link of by themselves.
_ADDRESSES: Final = re.compile(r"://|(?<=\bwww)\.", re.IGNORECASE)
_MARKDOWN: Final = str.maketrans("[]<>*`~!#|", "［］＜＞＊｀～！＃｜")


class Button(NamedTuple):
    """A link on a card. ``style``: ``main``, ``danger`` or empty."""

    text: str
    url: str
    style: str = ""


class Card(NamedTuple):
    """What a card says, in any form: texts are single lines, inert, not yet escaped. The names of facts are English."""

    words: CardWords
    title: str
    facts: Sequence[tuple[str, str]]
    buttons: Sequence[Button]
    page: str


def card_of(question: Question, links: Links, to: str, form: str, language: str = "en") -> Card:
    """The card of a question for its readers ``to``, with the buttons that fit into the form."""
    words = CardWords(language)
    limits, page = LIMITS[form], links.saga_page(question.saga_id)
    found = [(option, url) for option, url in links.of(question, to).items() if len(url) <= limits.url]
    buttons = [Button(words.option(option) or _inert(option, 100), url, _style(option)) for option, url in found]
    return Card(
        words=words,
        title=_inert(question.text, 300) if question.text else words.asks(question),
        facts=[(name, text) for name, text in _facts(question, words) if text],
        buttons=[*buttons[: limits.buttons - 1], Button(words("open"), page)],
        page=page,
    )


def message(question: Question, links: Links, to: str, form: str, language: str = "en") -> dict[str, Any]:
    """The JSON that a chat's incoming webhook takes."""
    return _FORMS[form](card_of(question, links, to, form, language))


def encoded(body: Mapping[str, Any]) -> bytes:
    """The bytes of a message: UTF-8, as limits count them."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _style(option: str) -> str:
    return {"approve": "main", "deny": "danger"}.get(option, "")


def _facts(question: Question, words: CardWords) -> list[tuple[str, str]]:
    again = words("reminder", n=question.round) if question.round else ""
    found = [
        ("Saga", quoted(question.saga_id, 128) + again),
        ("To", _inert(question.to, 100)),
        ("Step", _unaddressed(words.subject(question))),
        ("Goal", _inert(question.goal, _GOAL_CHARS)),
    ]
    if question.params is not None:
        shown = json.dumps(question.params, ensure_ascii=False, default=str)
        found.append(("Call", _inert(f"{question.tool} {shown}", _PARAMS_CHARS)))
    if question.error:
        code, message = (str(question.error.get(name) or "") for name in ("error_code", "message"))
        said = ": ".join(each for each in (code, translated(code, message, words.language)) if each)
        found.append(("Known", _inert(said, _GOAL_CHARS)))
    found += [("Proposed", _unaddressed(proposed(step, _GOAL_CHARS))) for step in (question.steps or ())[:5]]
    if question.expires_ms is not None:
        found.append(("Until", words.until(question, moment(question.expires_ms))))
    for option in question.options:
        follows = question.outlooks.get(option)
        if follows is not None and (button := words.option(option)):
            said = f"{button}{words('colon')}{then_words(follows, words.language)}"
            found.append(("Then", _inert(said, _GOAL_CHARS)))
    return found


def _inert(text: str, limit_chars: int) -> str:
    return _unaddressed(quoted(text, limit_chars))


def _unaddressed(text: str) -> str:
    """The text without anything that a chat would make a link of: a model must not put its own beside ours."""
    return _ADDRESSES.sub(lambda found: "\u200b." if found[0] == "." else ":\u200b//", text)


def fitted(text: str, most: int) -> str:
    """The text, cut to so many UTF-16 units."""
    if len(text.encode("utf-16-le")) <= most * 2:
        return text
    cut = text[: most - 1]
    while len(cut.encode("utf-16-le")) > (most - 1) * 2:
        cut = cut[:-1]
    return cut + "…"


# --- the forms -----------------------------------------------------------------------------------------------------


def _slack(card: Card) -> dict[str, Any]:
    """Block Kit with plain texts, in which Slack reads no markup; only the notification's text has escapes."""
    limits = LIMITS["slack"]
    styles = {"main": {"style": "primary"}, "danger": {"style": "danger"}, "": {}}
    return {
        "text": fitted(card.title.translate({38: "&amp;", 60: "&lt;", 62: "&gt;"}), limits.body),
        "unfurl_links": False,
        "blocks": [
            {"type": "header", "text": _plain(card.title, limits.title)},
            {"type": "section", "text": _plain(_lines(card), limits.body)},
            {
                "type": "actions",
                "elements": [
                    {
                        "type": "button",
                        "action_id": f"saga-{number}",
                        "text": _plain(each.text, limits.button),
                        "url": each.url,
                        **styles[each.style],
                    }
                    for number, each in enumerate(card.buttons)
                ],
            },
        ],
    }


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": fitted(text, most), "emoji": False}


def _feishu(card: Card) -> dict[str, Any]:
    """An interactive card with plain texts."""
    limits = LIMITS["feishu"]
    types = {"main": "primary", "danger": "danger", "": "default"}

    def plain(text: str, most: int) -> dict[str, str]:
        return {"tag": "plain_text", "content": fitted(text, most)}

    return {
        "msg_type": "interactive",
        "card": {
            "config": {"wide_screen_mode": True},
            "header": {"template": "orange", "title": plain(card.title, limits.title)},
            "elements": [
                {"tag": "div", "text": plain(_lines(card), limits.body)},
                {
                    "tag": "action",
                    "actions": [
                        {
                            "tag": "button",
                            "text": plain(each.text, limits.button),
                            "url": each.url,
                            "type": types[each.style],
                        }
                        for each in card.buttons
                    ],
                },
            ],
        },
    }


def _dingtalk(card: Card) -> dict[str, Any]:
    """An ActionCard. Its text is Markdown, whose signs in foreign text become their full-width twins."""
    limits = LIMITS["dingtalk"]
    title = card.title.translate(_MARKDOWN)
    colon = card.words("colon").strip()
    facts = "\n\n".join(
        f"**{card.words(f'fact.{name}')}{colon}** {text.translate(_MARKDOWN)}" for name, text in card.facts
    )
    return {
        "msgtype": "actionCard",
        "actionCard": {
            "title": fitted(title, limits.title),
            "text": fitted(f"### {title}\n\n{facts}", limits.body),
            "btnOrientation": "0" if len(card.buttons) > 2 else "1",
            "btns": [{"title": fitted(each.text, limits.button), "actionURL": each.url} for each in card.buttons],
        },
    }


def _wecom(card: Card) -> dict[str, Any]:
    """A text notice, the card that a group's robot may send: the links are below, and a tap elsewhere opens the page.

    Its fields are short, so that the page is where the whole call is read.
    """
    limits, facts = LIMITS["wecom"], dict(card.facts)
    shown = [(name, facts[name]) for name in ("To", "Step", "Known", "Until") if name in facts][:_WECOM_FACTS]
    quoted_text = facts.get("Call") or facts.get("Proposed")
    body: dict[str, Any] = {
        "card_type": "text_notice",
        "source": {"desc": "saga", "desc_color": 0},
        "main_title": {
            "title": fitted(card.title, limits.title),
            "desc": fitted(facts.get("Saga", ""), _WECOM_DESC),
        },
        "sub_title_text": fitted(facts.get("Goal") or card.title, limits.body),
        "horizontal_content_list": [
            {"keyname": fitted(card.words(f"fact.{name}"), _WECOM_NAME), "value": fitted(text, _WECOM_VALUE)}
            for name, text in shown
        ],
        "jump_list": [{"type": 1, "title": fitted(each.text, limits.button), "url": each.url} for each in card.buttons],
        "card_action": {"type": 1, "url": card.page},
    }
    if quoted_text:
        body["quote_area"] = {"type": 0, "quote_text": fitted(quoted_text, _WECOM_QUOTE)}
    return {"msgtype": "template_card", "template_card": body}


def _lines(card: Card) -> str:
    return "\n".join(f"{card.words(f'fact.{name}')}{card.words('colon')}{text}" for name, text in card.facts)


_FORMS: Final[Mapping[str, Callable[[Card], dict[str, Any]]]] = {
    "slack": _slack,
    "feishu": _feishu,
    "dingtalk": _dingtalk,
    "wecom": _wecom,
}
