"""How Sphinx builds the site. ``dev/website/build.py`` lays the pages out and says which language this is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chinese_search import ChineseSearch

HERE = Path(__file__).parent
LANGUAGE = os.environ["SAGA_DOCS_LANGUAGE"]

project = "saga_engine"
html_title = project
author = "the saga_engine authors"
release = os.environ["SAGA_DOCS_VERSION"]
language = {"en": "en", "zh": "zh_CN"}[LANGUAGE]
root_doc = "index"
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}

# The pages are read on the repository's pages as well, so of MyST's own syntax only directives are used, and those
# are written by the build. Headings get the anchors that readers of the repository know.
myst_heading_anchors = 6
myst_disable_syntax = ["myst_block_break", "myst_line_comment", "myst_role", "myst_target"]
# Options are typed with two dashes, so the site shows two.
smartquotes = False
myst_url_schemes = {"http": None, "https": None, "mailto": None, "english": "{{path}}"}


html_theme = "furo"
html_static_path = [str(HERE / "static")]
templates_path = [str(HERE / "templates")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/languages.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_context = {"site_language": LANGUAGE}
html_search_language = {"en": "en", "zh": "zh"}[LANGUAGE]
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def setup(app):  # noqa: ANN001, ANN201
    """Sphinx' own search in Chinese needs a dictionary; ours does not."""
    app.add_search_language(ChineseSearch)
