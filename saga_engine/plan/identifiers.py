"""What names and values of params look like: ids, which come from somewhere, and recipients, who get something."""

from __future__ import annotations

import re
from typing import Final

#: The last word of a parameter that holds an id. Those of the second set hold one only if an earlier step returns it.
ID_WORDS: Final = frozenset(
    {"id", "ids", "uuid", "guid", "ref", "refs", "reference", "arn", "handle", "locator", "pnr"}
)
MAYBE_WORDS: Final = frozenset(
    {"number", "no", "code", "key", "token", "ip", "address", "endpoint", "sku", "iban", "account"}
)
#: Words of parameters that say who gets something, or where it goes.
_RECIPIENT_WORDS: Final = frozenset({
    "to", "cc", "bcc", "recipient", "recipients", "receiver", "payee", "beneficiary", "creditor", "customer", "user",
    "email", "mail", "phone", "mobile", "iban", "bic", "account", "wallet", "card", "address", "destination", "target",
    "channel", "url", "uri", "webhook", "host", "endpoint",
})  # fmt: skip
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_ADDRESS: Final = re.compile(
    r"[^\s@]+@[^\s@]+\.[^\s@]+|[A-Za-z][A-Za-z0-9+.-]*://\S+|[A-Z]{2}\d\d[A-Z0-9 ]{11,40}|\+[\d ()/-]{7,25}"
)
#: Dates, times, amounts, versions and networks: values that are written and not looked up.
_WRITTEN: Final = re.compile(
    r"\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?|\d{4}-\d\d-\d\d[T ].*|\d{1,2}:\d\d(:\d\d)?.*"
    r"|[+-]?[\d.,' ]+\s?[A-Za-z%€$£¥]{0,4}|v?\d+(\.\d+)+|[\d.]+/\d+|P(\d+[A-Z])*(T.*)?"
)


def words(name: str) -> list[str]:
    """The words of a name, in lower case: 'vm' and 'id' of 'vmId' and of 'vm_id'."""
    return [word.lower() for word in _WORD.findall(name)]


def names_id(name: str) -> bool:
    """Whether a param of this name holds an id."""
    return bool(found := words(name)) and found[-1] in ID_WORDS


def names_target(name: str) -> bool:
    """Whether a param of this name says what a call acts on, or who gets something."""
    return names_id(name) or not _RECIPIENT_WORDS.isdisjoint(words(name))


def is_address(value: str) -> bool:
    """Whether a text is an address as a whole: of a mailbox, of a page, of a bank account, of a phone."""
    return _ADDRESS.fullmatch(value.strip()) is not None


def is_opaque(value: str) -> bool:
    """Whether a text looks like an id that a machine has made: one word with a digit, no date, no amount."""
    text = value.strip()
    if not text or re.search(r"\s", text) or len(text) > 200 or not any(char.isdigit() for char in text):
        return False
    if text.isdecimal():
        return len(text) > 4 and not re.fullmatch(r"(19|20)\d{6}", text)
    return _WRITTEN.fullmatch(text) is None
