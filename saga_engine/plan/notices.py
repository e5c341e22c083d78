"""Which tools only tell somebody something: a mail, a message, a post.

Such a call cannot be undone and does little harm, so a review names it by its kind. The words of the tool decide: its
name, and a parameter that takes the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from saga_engine.plan.identifiers import words

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolSpec

#: The kind of a notice, by the words of the tool's name.
_KINDS: Final = {
    "mail": "mail", "mails": "mail", "email": "mail", "emails": "mail", "newsletter": "mail",
    "sms": "message", "message": "message", "messages": "message", "msg": "message", "chat": "message",
    "slack": "message", "teams": "message", "telegram": "message", "whatsapp": "message", "wechat": "message",
    "notify": "notice", "notification": "notice", "notifications": "notice", "notice": "notice", "notices": "notice",
    "alert": "notice", "alerts": "notice", "inform": "notice", "tell": "notice", "announce": "notice",
    "push": "notice", "pager": "notice", "post": "post", "tweet": "post", "publish": "post",
    "letter": "letter", "letters": "letter", "fax": "letter",
}  # fmt: skip
#: Words of a name that do more than tell.
_MORE: Final = frozenset(
    {"delete", "remove", "erase", "purge", "create", "update", "set", "pay", "payment", "transfer", "charge", "refund",
     "book", "order", "ledger", "journal", "account", "list", "lists", "box", "mailbox", "subscribe", "unsubscribe",
     "template", "rule", "rules", "server", "user", "archive", "move", "forward", "code", "branch", "image"}
)  # fmt: skip
#: Parameters that take what is said.
_TEXTS: Final = frozenset(
    {"text", "message", "body", "content", "subject", "html", "title", "summary", "msg", "note", "template"}
)
#: Parameters that say who hears it.
_WHO: Final = frozenset(
    {"to", "recipient", "recipients", "customer", "user", "email", "mail", "phone", "channel", "number"}
)


def notice_kind(spec: ToolSpec) -> str:
    """``mail``, ``message``, ``notice``, ``post`` or ``letter``; empty for a tool that does something else."""
    if spec.effect == "read" or spec.undo is not None:
        return ""
    named = words(spec.name)
    kind = next((_KINDS[word] for word in reversed(named) if word in _KINDS), "")
    properties = spec.input_schema.get("properties")
    fields = {part for name in (properties if isinstance(properties, dict) else {}) for part in words(str(name))}
    if not kind and "send" in named and fields & _WHO:
        kind = "message"
    return kind if kind and not _MORE & set(named) and fields & _TEXTS else ""


def is_notice(spec: ToolSpec) -> bool:
    """Whether a tool only tells somebody something."""
    return bool(notice_kind(spec))
