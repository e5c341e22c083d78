"""The site that ``make docs`` builds: strict, whole without a network, and found by its search in both languages."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from dev.website.build import build
from dev.website.chinese_search import terms
from dev.website.diagrams import drawn
from dev.website.reference import cli as reference
from dev.website.stage import DeadLink, Stage, toctrees
from saga_engine.cli import app
from tests.docs.pages import ROOT
from tests.server.console.browsing import browsing

#: The first one builds the whole site.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the pages as they are. That it can be built is what ``strict`` means."""
    out = tmp_path_factory.mktemp("site") / "site"
    build(out)
    return out


def small(root: Path, **pages: str) -> Path:
    """A repository with a few pages."""
    for name, text in pages.items():
        path = root / "docs" / f"{name.replace('_zh', '.zh')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_no_page_needs_anything_from_elsewhere(site: Path) -> None:
    """No script, style, font or picture of the site comes from another host: it is read without a network."""
    loads = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*\shref=\"(?:https?:)?//")
    styles = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import")
    pages, sheets = sorted(site.rglob("*.html")), sorted(site.rglob("*.css"))
    assert len(pages) > 100
    assert sheets
    assert [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
    assert [sheet.name for sheet in sheets if styles.search(sheet.read_text(encoding="utf-8"))] == []


def test_every_link_within_the_site_leads_to_a_file(site: Path) -> None:
    """Also those that Sphinx does not check: between the languages, and from Chinese pages to sources."""
    dead = set()
    pages = sorted(site.rglob("*.html"))
    for page in pages:
        for target in re.findall(r'href="([^"#?]+)', page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target) and not (page.parent / target).is_file():
                dead.add(f"{page.relative_to(site)}: {target}")
    assert sorted(dead) == []
    assert "english:" not in (site / "zh/semantics.html").read_text(encoding="utf-8")


def test_an_option_is_shown_as_it_is_typed(site: Path) -> None:
    """In prose, code and headings of every page the two dashes before a long option are two, and never one long dash."""
    commands = get_command(app), *(command for _, command in reference.commands(get_command(app)))
    named = {name for each in commands for param in each.params for name in (*param.opts, *param.secondary_opts)}
    options = sorted(name.removeprefix("--") for name in named if name.startswith("--"))
    assert {"json", "dry-run", "log-format"} <= set(options)
    changed = re.compile(rf"[\u2010-\u2015\u2212]-?(?:{'|'.join(options)})\b")
    pages = {page: html.unescape(page.read_text(encoding="utf-8")) for page in sorted(site.rglob("*.html"))}
    assert {
        str(page.relative_to(site)): found for page, text in pages.items() if (found := changed.findall(text))
    } == {}
    assert "--json" in pages[site / "reference" / "cli.html"]


def test_every_page_is_there_in_both_languages(site: Path) -> None:
    """Each page of the repository has its address, and the same one in the Chinese site."""
    names = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    names = [name for name in names if not name.name.endswith(".zh.md") and name.name != "README.md"]
    assert len(names) > 40
    for folder in (site, site / "zh"):
        assert [str(name) for name in names if not (folder / name).with_suffix(".html").is_file()] == []
    assert 'href="zh/index.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert 'href="../../decisions/index.html"' in (site / "zh/decisions/index.html").read_text(encoding="utf-8")


@pytest.mark.chromium
async def test_the_search_finds_in_both_languages_without_a_server(site: Path) -> None:
    """A reader who opened the files finds pages by words, by Chinese of any length, and nothing by nonsense."""
    async with browsing() as browser:
        page = await browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for folder, query, found in (
            (site, "idempotency", "concepts.html"),
            (site / "zh", "逆序撤销", "index.html"),
            (site / "zh", "撤销", "index.html"),
        ):
            await page.goto(f"{(folder / 'search.html').as_uri()}?q={query}")
            await page.locator(f"#search-results a[href*='{found}']").first.wait_for()
        await page.goto(f"{(site / 'zh/search.html').as_uri()}?q=销逆")
        await page.locator("#search-results p.search-summary").get_by_text("没有匹配").wait_for()
        assert [url for url in asked if not url.startswith("file:")] == []


def test_chinese_is_cut_into_pairs() -> None:
    """Pairs that stand side by side, words in Latin letters whole, a single character as it is."""
    assert terms("用 saga_engine 撤销步骤，再试") == ["用", "saga_engine", "撤销", "销步", "步骤", "再试"]


def test_diagrams_are_pictures_in_the_colours_of_the_page() -> None:
    """Every state, room and label of the diagram is in the picture; without Graphviz the diagram's text is shown."""
    page = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    diagrams = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    words = set(re.findall(r"[A-Za-z_]{3,}", " ".join(diagrams))) - {
        *("stateDiagram", "flowchart", "subgraph", "direction", "floor", "end")
    }
    text = drawn(page)
    shown = set(re.findall(r"[A-Za-z_]{3,}", " ".join(re.findall(r"<text [^>]*>([^<]*)<", text) or [text])))
    assert len(words) > 30
    assert words <= shown
    assert "mermaid" not in text
    assert '"black"' not in text


# --- strict --------------------------------------------------------------------------------------------------------

INDEX = "# Docs\n\n## Start\n\n- [one](one.md)\n"


def test_a_page_outside_the_navigation_and_a_heading_that_is_not_there_end_the_build(tmp_path: Path) -> None:
    """Both are warnings of Sphinx, which are errors here, and ``make docs`` ends with them."""
    root = small(tmp_path, README=INDEX, one="# One\n\n[there](README.md#nowhere)\n", two="# Two\n")
    command = [sys.executable, "-m", "dev.website.build", "--root", str(root), "--out", str(tmp_path / "out")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "en/one.md:3: WARNING: local id not found" in ran.stderr
    assert "en/two.md: WARNING: document isn't included in any toctree" in ran.stderr
    assert ran.stdout == ""


def test_a_link_to_no_file_ends_the_build(tmp_path: Path) -> None:
    """It names the folder and the link."""
    root = small(tmp_path, README=INDEX, one="# One\n\n[gone](../gone.py)\n")
    with pytest.raises(DeadLink, match=r"docs: \.\./gone\.py"):
        Stage(tmp_path / "out", "en", root).lay_out()


def test_what_a_page_links_to_outside_docs_is_on_the_site(tmp_path: Path) -> None:
    """A source file is shown as it is, a folder by its README or its files; code that looks like a link stays."""
    root = small(
        tmp_path,
        README=INDEX,
        one="# One\n\n[a](../a/x.py) [b](../b) [c](../c)\n`[d](no.md)`\n\n```\n[e](no.md)\n```\n",
    )
    for name, text in {
        "a/x.py": 'print("```")\n',
        "b/README.md": "# B\n\n[one](../docs/one.md)\n",
        "c/y.txt": "y",
    }.items():
        (root / name).parent.mkdir()
        (root / name).write_text(text, encoding="utf-8")
    Stage(tmp_path / "out", "en", root).lay_out()
    text = (tmp_path / "out" / "one.md").read_text(encoding="utf-8")
    assert "[a](source/a/x.py.md) [b](source/b/index.md) [c](source/c/index.md)" in text
    assert "`[d](no.md)`\n\n```\n[e](no.md)\n```" in text
    assert '````python\nprint("```")\n````' in (tmp_path / "out/source/a/x.py.md").read_text(encoding="utf-8")
    assert "[one](../../one.md)" in (tmp_path / "out/source/b/index.md").read_text(encoding="utf-8")
    assert "[y.txt](y.txt.md)" in (tmp_path / "out/source/c/index.md").read_text(encoding="utf-8")


def test_a_link_to_a_heading_leads_to_that_of_the_translation(tmp_path: Path) -> None:
    """Whoever links to an English heading reaches the same one of the Chinese page, whichever language links."""
    root = small(
        tmp_path,
        README=INDEX,
        README_zh="# 文档\n\n## 开始\n\n- [一](one.zh.md)\n- [二](two.md)\n",
        one="# One\n\n```sh\n# no heading\n```\n\n## Then\n\n## Then\n",
        one_zh="# 一\n\n```sh\n# no heading\n```\n\n## 然后\n\n## 随后\n\n[二](two.md#there) [此](one.zh.md#然后)\n",
        two="# Two\n\n## There\n\n[a](one.md#then) [b](one.md#then-1) [c](one.md#nowhere)\n",
    )
    Stage(tmp_path / "out", "zh", root).lay_out()
    assert "[a](one.md#然后) [b](one.md#随后) [c](one.md#nowhere)" in (tmp_path / "out/two.md").read_text(
        encoding="utf-8"
    )
    assert "[二](two.md#there) [此](one.md#然后)" in (tmp_path / "out/one.md").read_text(encoding="utf-8")


def test_a_chinese_page_takes_the_place_of_its_twin(tmp_path: Path) -> None:
    """Its links lead to the addresses that both sites share; a page without one says that it is in English."""
    index = "# 文档\n\n## 开始\n\n- [一](one.zh.md)\n- [二](two.md)\n"
    root = small(
        tmp_path,
        README=INDEX + "- [two](two.md)\n",
        README_zh=index,
        one="# One\n",
        one_zh="# 一\n\n[二](two.md) [首页](README.zh.md)\n",
        two="# Two\n\nText\n",
    )
    for language in ("en", "zh"):
        Stage(tmp_path / language, language, root).lay_out()
    assert (tmp_path / "en/one.md").read_text(encoding="utf-8") == "# One\n"
    assert (tmp_path / "zh/one.md").read_text(encoding="utf-8") == "# 一\n\n[二](two.md) [首页](index.md)\n"
    assert (tmp_path / "zh/two.md").read_text(encoding="utf-8") == "# Two\n\n*本页目前只有英文版。*\n\nText\n"
    assert ":caption: 开始\n\n一 <one>\n二 <two>\n" in (tmp_path / "zh/index.md").read_text(encoding="utf-8")
    assert not (tmp_path / "zh/one.zh.md").exists()


def test_the_navigation_is_the_index() -> None:
    """A tree for each section in its order, with the titles of its links; what leads out of docs/ is no entry."""
    trees = list(
        toctrees("# Docs\n[x](../README.md)\n\n## A\n| [one](one.md) | [two](d/two.md) |\n\n## B\n[no](#a)\n", {})
    )
    assert trees == ["\n\n```{toctree}\n:hidden:\n:maxdepth: 1\n:caption: A\n\none <one>\ntwo <d/two>\n```\n"]
