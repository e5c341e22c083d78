"""The rules for a server's user that the page on stores shows."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "stores.md"


def documented_rules():
    """The rules of the ACL user, word for word from the docs."""
    (rules,) = re.findall(r"`(\+@read [^`]+)`", DOCS.read_text())
    return rules
