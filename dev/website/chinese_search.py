"""Search in Chinese without a dictionary: pages and queries are cut into pairs of neighbouring characters."""

from __future__ import annotations

import re

from sphinx.search.en import SearchEnglish

_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_RUNS = re.compile(rf"[{_HAN}]+|[A-Za-z0-9_]+")


def terms(text: str) -> list[str]:
    """The terms of a text: words in Latin letters, and each pair of Chinese characters that stand side by side."""
    found: list[str] = []
    for run in _RUNS.findall(text):
        if re.match(f"[{_HAN}]", run) and len(run) > 1:
            found += [run[at : at + 2] for at in range(len(run) - 1)]
        else:
            found.append(run)
    return found


#: The same for a query, in the browser: `searchtools.js` looks for a variable of this name.
SPLITTER = f"""
var splitQuery = (query) => (query.match(/[{_HAN}]+|[A-Za-z0-9_]+/g) || []).flatMap((run) =>
  /^[{_HAN}]/.test(run) && run.length > 1
    ? Array.from({{length: run.length - 1}}, (_, at) => run.slice(at, at + 2))
    : [run]);
"""


class ChineseSearch(SearchEnglish):
    """Words in Latin letters as in English, Chinese by pairs of characters."""

    lang = "zh"
    language_name = "English"  # what Sphinx names the browser's stemmer by
    js_splitter_code = SPLITTER

    def split(self, input: str) -> list[str]:  # noqa: A002
        """The terms of a text."""
        return terms(input)
