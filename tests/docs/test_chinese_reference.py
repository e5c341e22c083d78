"""The Chinese reference says all that the English one says, as it is now."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from dev.website import reference
from dev.website.reference import chinese
from dev.website.stage import slugs
from tests.docs.pages import ROOT

PAGE = """# Things

<!-- a note -->

A `thing` does what [tools](../tools.md#guards) do.

| field | default |
|---|---|
| `a \\| b` | none |

## Its end

```text
no words of the page
```

See [the end](#its-end) and `no [link](x.md)`.
"""


@pytest.fixture(scope="module")
def english() -> dict[str, str]:
    """The English pages."""
    return reference.english()


def _po(stem: str) -> str:
    return chinese.file(stem).read_text(encoding="utf-8")


def _filled(po: str, **words: str) -> str:
    for begin, translation in words.items():
        po, n = re.subn(rf'(msgid "{begin}.*"\nmsgstr) ""', lambda match, text=translation: f'{match[1]} "{text}"', po)
        assert n == 1
    return po


@pytest.mark.parametrize("stem", chinese.stems())
def test_every_message_is_translated(stem: str, english: dict[str, str]) -> None:
    """A text of the code that is new or has changed has its translation in the same commit."""
    file, po = chinese.file(stem).relative_to(ROOT), _po(stem)
    listed = [each.id for each in chinese.read(po) if each.id]
    assert listed == chinese.messages(english[f"{stem}.md"]), "run `make docs-reference`"
    todo = f"translate these in {file}, remove their marks `#, fuzzy`, and run `make docs-reference`"
    assert chinese.untranslated(po) == [], todo


@pytest.mark.parametrize("stem", chinese.stems())
def test_a_translation_has_the_same_code_and_links(stem: str) -> None:
    """What is typed or read by a program is the same in both languages; only its order may differ."""

    def kept(text: str) -> Counter[str]:
        return Counter(re.findall(r"`[^`]*`|\]\([^)]*\)", text))

    other = [each.id for each in chinese.read(_po(stem)) if each.string and kept(each.id) != kept(each.string)]
    assert other == [], f"code or links differ in {chinese.file(stem).relative_to(ROOT)}"


def test_every_page_of_the_reference_is_there_in_chinese(english: dict[str, str]) -> None:
    """A page that is added gets a catalogue: an empty file, which ``make docs-reference`` fills with its messages."""
    assert chinese.stems() == sorted(name.removesuffix(".md") for name in english if name.endswith(".md"))


def test_a_message_is_what_has_words() -> None:
    """Headings, paragraphs and cells; no code, no note, and nothing whose words are all code or a link's target."""
    assert chinese.messages(PAGE) == [
        "Things",
        "A `thing` does what [tools](../tools.md#guards) do.",
        "field",
        "default",
        "none",
        "Its end",
        "See [the end](#its-end) and `no [link](x.md)`.",
    ]


def test_a_translated_page_has_its_headings_and_links(tmp_path, monkeypatch) -> None:
    """Links lead to Chinese twins and to their headings; code, and what has no translation, stays."""
    page = tmp_path / "docs" / "reference" / "things.md"
    page.parent.mkdir(parents=True)
    page.parent.with_name("tools.md").write_text("# Tools\n\n## Guards\n", encoding="utf-8")
    page.parent.with_name("tools.zh.md").write_text("# 工具\n\n## 防护\n", encoding="utf-8")
    words = {
        "Its end": "结束",
        "A `thing`": "`thing` 同[工具](../tools.md#guards)。",
        "none": "无",
        "See": "见 [x](#its-end)。",
    }
    catalog = tmp_path / "things.po"
    catalog.write_text(_filled(chinese.renewed("", PAGE), **words), encoding="utf-8")
    monkeypatch.setattr(chinese, "file", lambda stem: catalog)
    monkeypatch.setattr(chinese.stage, "ROOT", tmp_path)
    text = chinese.twin("things", PAGE, page)
    assert "# Things\n\n<!-- made from the code and `things.po`" in text
    assert "\n`thing` 同[工具](../tools.zh.md#防护)。\n" in text
    assert "| `a \\| b` | 无 |\n" in text
    assert "\n## 结束\n\n```text\nno words of the page\n```\n\n见 [x](#结束)。\n" in text
    assert len(slugs(text)) == len(slugs(PAGE))


def test_a_message_that_changed_stays_english_until_it_is_translated_again() -> None:
    """Its translation is kept as a proposal, which is marked; a message that is gone takes its translation with it."""
    old = _filled(chinese.renewed("", PAGE), **{"A `thing`": "旧", "none": "无", "field": "字段"})
    page = PAGE.replace("A `thing`", "Any `thing`").replace("| none |", "| |")
    new = chinese.renewed(old, page)
    assert '#, fuzzy\nmsgid "Any `thing` does what [tools](../tools.md#guards) do."\nmsgstr "旧"' in new
    assert "Any `thing` does what [tools](../tools.md#guards) do." in chinese.untranslated(new)
    assert "无" not in new
    assert 'msgid "field"\nmsgstr "字段"' in new
    assert chinese.renewed(old, PAGE) == old
    assert chinese.renewed(new, page) == new
