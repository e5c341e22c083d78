"""The pages hold together, and say what the program says."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.main import get_command

from dev.website import reference
from dev.website.reference import cli as commands
from dev.website.reference import settings_tables
from saga_engine import errors, settings
from saga_engine.cli import app, exit_codes
from saga_engine.core import questions
from saga_engine.core.messages import DECISIONS
from saga_engine.hooks import config as hooks
from saga_engine.plan import words
from tests.docs.diagrams import PAGES as DRAWN
from tests.docs.diagrams import drawn
from tests.docs.pages import PAGES, ROOT, anchors, prose

CONCEPTS = ROOT / "docs" / "concepts.md"
ERROR_CODES = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") + ERROR_CODES
TWINS = [page for page in PAGES if page.name.endswith(".zh.md") and page.parent == ROOT / "docs"]
REFERENCE = sorted(path.name for path in reference.FOLDER.iterdir())
GUARANTEES = (ROOT / "docs" / "reference" / "proofs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of the project, and to a heading in it, resolves."""
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


def _not_in(index: Path, pages: Iterable[Path]) -> list[str]:
    listed = index.read_text(encoding="utf-8")
    names = [page.relative_to(index.parent).as_posix() for page in sorted(pages)]
    return [name for name in names if not name.startswith("README.") and f"({name})" not in listed]


def test_every_page_is_in_the_index() -> None:
    """A page that nobody can find is not there. A Chinese page is in the Chinese index, in the place of its twin."""
    docs, decisions = ROOT / "docs", ROOT / "docs" / "decisions"
    assert _not_in(decisions / "README.md", decisions.glob("*.md")) == []
    pages = {page for page in docs.rglob("*.md") if page.parent != decisions}
    chinese = {page for page in pages if page.name.endswith(".zh.md")}
    twins = {page: page.with_name(page.name.replace(".zh.md", ".md")) for page in chinese}
    assert [page.name for page, twin in twins.items() if not twin.is_file()] == []
    assert _not_in(docs / "README.md", pages - chinese) == []
    assert _not_in(docs / "README.zh.md", (pages - set(twins.values())) | chinese) == []


def _blocks(page: Path) -> list[str]:
    return re.findall(r"^```.*?^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", TWINS, ids=lambda page: page.name)
def test_a_chinese_page_has_the_same_code(page: Path) -> None:
    """Whatever is to be typed, and whatever is printed, is the same in both languages."""
    english = page.with_name(page.name.replace(".zh.md", ".md"))
    assert _blocks(page) == _blocks(english)


def _tables(page: Path) -> list[tuple[int, list[str], list[str]]]:
    """Of each row of the page's tables: how many cells it has, the numbers in them, and the tests that it names."""
    rows = [line for line in prose(page).splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace("、", ", ") for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return [
        (
            len(row),
            [cell for cell in row if re.fullmatch(r"[\d,.· —]+", cell)],
            re.findall(r"[\w/]+\.py(?:::\w+)?", text),
        )
        for row, text in zip(cells, rows, strict=True)
    ]


@pytest.mark.parametrize("page", TWINS, ids=lambda page: page.name)
def test_a_chinese_page_has_the_same_headings_and_tables(page: Path) -> None:
    """Headings have the same levels, as the site maps their anchors by place; rows the same cells, numbers and tests."""
    english = page.with_name(page.name.replace(".zh.md", ".md"))
    levels = [re.findall(r"^#+(?= )", prose(each), re.MULTILINE) for each in (page, english)]
    assert levels[0] == levels[1]
    assert _tables(page) == _tables(english)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_have_at_most_120_columns(page: Path) -> None:
    """Prose can be read and reviewed in a window; tables, code and what a benchmark writes are as wide as they are."""
    if page.parent.name == "planner_prompts":
        return
    text = re.sub(r"<!-- benchmark.*?<!-- end of benchmark -->", "", prose(page), flags=re.DOTALL)
    lines = [re.sub(r"`[^`]{80,}`", "", line) for line in text.splitlines() if not re.match(r" *\||    ", line)]
    assert [line for line in lines if len(line) > 120] == []


def test_the_diagrams_are_the_tables() -> None:
    """The state diagrams and the rooms are what ``make docs-diagrams`` would draw now."""
    for page in DRAWN:
        text = page.read_text(encoding="utf-8")
        assert text == drawn(text)


@functools.cache
def _written_now() -> dict[str, str]:
    return reference.pages()


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_is_the_code(name: str) -> None:
    """The pages of ``docs/reference`` are what ``make docs-reference`` would write now, and there are no others."""
    written = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == _written_now().get(name), "run `make docs-reference`, and read the difference"
    assert sorted(_written_now()) == REFERENCE


def test_every_variable_that_the_program_reads_is_in_the_reference() -> None:
    """Whatever is set in the environment is on the page of the settings."""
    page = (reference.FOLDER / "settings.md").read_text(encoding="utf-8")
    rooms = [room for room in (ROOT / "saga_engine").iterdir() if room.name not in ("core", "testing")]
    files = [path for room in rooms for path in ([room] if room.suffix == ".py" else room.rglob("*.py"))]
    read = {name for path in files for name in re.findall(r'"(SAGA_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    assert {"SAGA_CONFIG", "SAGA_MODEL_ROUNDS", "SAGA_MCP_TOKEN"} <= read
    assert {name for name in read if f"`{name}`" not in page} == set()


def test_every_table_that_the_file_may_have_is_in_the_reference() -> None:
    """Whatever table ``saga.toml`` may have, and whatever kind of hook, has its section on the page of the settings."""
    page = (reference.FOLDER / "settings.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## `\[(\w+)(?:\.NAME)?\]`$", page, re.MULTILINE)
    assert {"policy", "tools", "retention"} <= set(settings._TABLES)
    assert sorted(headings) == sorted(("saga", *settings._TABLES))
    assert set(hooks._MAKERS) == set(re.findall(r'^### Hooks with `kind = "(\w+)"`$', page, re.MULTILINE))


def test_a_field_without_a_meaning_is_in_no_reference() -> None:
    """A field that is added to a table says what it means: the page is not written before."""

    @dataclasses.dataclass
    class Table:
        """A table.

        ``one``, ``two``: what both mean; ``three``: ``one`` of them. More of it.

        Not this.
        """

        one: str = ""
        two: list[str] | None = None
        three: bool = False

    names = ["one", "two", "three"]
    found = settings_tables.meanings(Table.__doc__, names)
    assert found == {"one": "what both mean", "two": "what both mean", "three": "``one`` of them. More of it"}
    assert [settings_tables.toml_type(each) for each in settings_tables.hints_of(Table).values()] == [
        *("str", "list[str]", "bool")
    ]
    with pytest.raises(ValueError, match="Table does not say what these mean: four"):
        settings_tables._meanings(Table, [*names, "four"])


def test_the_json_of_every_command_is_in_the_reference() -> None:
    """Each command that has ``--json`` is named in the section that says what it prints."""
    page = (reference.FOLDER / "cli.md").read_text(encoding="utf-8").split("\n## The JSON of each command\n")[1]
    told = {name for cell in re.findall(r"^\| (.*?) \|", page, re.MULTILINE) for name in re.findall(r"`([^`]+)`", cell)}
    every = commands.commands(get_command(app))
    printing = {name for name, command in every if any("--json" in param.opts for param in command.params)}
    assert printing - {"mcp"} - told == set()  # `saga mcp` prints it with `check` alone, which is there


# --- errors --------------------------------------------------------------------------------------------------------


def _rows(heading: str) -> dict[str, list[str]]:
    section = ERRORS.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    return {code: row for row in rows for code in re.findall(r"`([^`]+)`", row[0])}


def _engine_errors() -> list[type[errors.SagaError]]:
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.SagaError)]
    return sorted(found, key=lambda kind: kind.code)


def test_every_code_of_the_program_is_explained_and_no_other() -> None:
    """The codes of ``errors.py`` and those of the reference are the same."""
    assert sorted(_rows("Errors of the engine")) == [kind.code for kind in _engine_errors()]


@pytest.mark.parametrize("kind", _engine_errors(), ids=lambda kind: kind.code)
def test_an_errors_row_says_what_the_program_does(kind: type[errors.SagaError]) -> None:
    """Class, verdict and exit code on the reference page are those of the program; it says what to do."""
    row = next(line for line in ERROR_CODES.splitlines() if line.startswith(f"| `{kind.code}` |")).split(" | ")
    assert all(_rows("Errors of the engine")[kind.code])
    error = kind([errors.Problem("c", "$", "m")]) if kind is errors.PlanInvalid else kind("m")  # type: ignore[arg-type]
    assert row[1].startswith(f"`{kind.__name__}`")
    assert row[2:4] == [f"`{kind.verdict}`", str(exit_codes.of_error(error))]


def test_the_kinds_of_questions_and_their_answers_are_explained() -> None:
    """Every kind of question, and every decision, has its row."""
    assert sorted(_rows("Questions to operators")) == sorted(questions.OPTIONS)
    section = CONCEPTS.read_text(encoding="utf-8").split("## Decisions\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == sorted(DECISIONS)


def test_the_reasons_of_a_turn_are_explained() -> None:
    """Every value that ``State.reason`` can have has its row."""
    rooms = [*(ROOT / "saga_engine" / "core").rglob("*.py"), ROOT / "saga_engine" / "runtime" / "session.py"]
    source = "".join(path.read_text(encoding="utf-8") for path in rooms)
    ways = (r'stop\(state, "([a-z-]+)"\)', r'_stopping\("([a-z-]+)"\)', r'\breason(?:: str)? ?= ?"([a-z-]+)"')
    assert {reason for way in ways for reason in re.findall(way, source)} == set(_rows("Why a saga turned around"))


#: Who takes an error code of a call, and at which place; all take it as ``error_code``, too.
_TAKERS = {
    "ErrorInfo": 0,
    "Lost": 0,
    "NeverSent": 0,
    "OutcomeUnknown": None,
    "ToolError": None,
    "_cannot_call": 4,
    "_not_done": 1,
    "_not_sent": 1,
    "_refusal": 0,
    "_this_time": 1,
    "_unknown": 1,
    "_unreadable": 2,
    "gave_up": 0,
}


def _call_codes() -> set[str]:
    found: set[str] = set()
    for room in (
        "core",
        "analysis",
        "ports",
        "execution",
        "runtime",
        "tools",
        "guards",
        "policy",
        "sources",
        "temporal",
    ):
        for path in (ROOT / "saga_engine" / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name in _TAKERS:
                    found |= _texts(node.args.defaults)
                if isinstance(node, ast.Call):
                    found |= _texts(_code_of(node))
    return found | {errors.ToolError("m").error_code, errors.OutcomeUnknown("m").error_code}


def _code_of(call: ast.Call) -> list[ast.expr]:
    """Where a call gives an error code, if it is one that takes one."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name not in _TAKERS:
        return []
    place = _TAKERS[name]
    by_place = [] if place is None else call.args[place : place + 1]
    return [*by_place, *(given.value for given in call.keywords if given.arg == "error_code")]


def _texts(nodes: list[ast.expr]) -> set[str]:
    found = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {value for value in found if isinstance(value, str) and value}


#: Codes on the page that stand nowhere in the program: they are made of a status, an exception's name, or the code of
#: one of the engine's own errors.
_MADE = {
    "http_404", "http_503", "read_timeout", "value_error", "connect_error", "connect_timeout", "read_error",
    "store_unavailable", "store_refused", "model_unreachable", "planner_failed", "goal_impossible",
}  # fmt: skip


def test_the_error_codes_of_calls_are_explained() -> None:
    """Every code that the engine itself gives a call has its row; the rows for whole families are extra."""
    brought = {f"{name}_invalid" for name in words.shipped()}
    assert set(_rows("Error codes of a call")) - _MADE == _call_codes() | brought


# --- guarantees ----------------------------------------------------------------------------------------------------


def test_every_promise_names_a_test_that_exists() -> None:
    """A promise without a test is a wish: each row names one, and each ``file::name`` on the page is there."""
    named = re.findall(r"`((?:tests|saga_engine/testing)/[\w/]+\.py)(?:::(\w+))?`", GUARANTEES)
    missing = []
    for file, name in named:
        path = ROOT / file
        if not path.is_file() or (
            name and not re.search(rf"^\s*(async )?def {name}\b", path.read_text("utf-8"), re.MULTILINE)
        ):
            missing.append(f"{file}::{name}")
    assert missing == []
    rows = re.findall(r"^\| \d+ \|.*$", GUARANTEES, re.MULTILINE)
    assert len(rows) >= 15
    assert [row for row in rows if "::test_" not in row] == []


# --- the tree ------------------------------------------------------------------------------------------------------


def _files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a git checkout")
def test_no_path_of_a_machine_and_no_registry_stands_in_the_tree() -> None:
    """What is written here is true on any machine."""
    registries = (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("deb", "debian", "org"),
    )  # in pieces: this file is searched, too
    hosts = [re.escape(".".join(parts)) for parts in registries]
    places = [re.escape(f"{place}/") for place in (ROOT, Path.home()) if place != place.parent]
    forbidden = re.compile("|".join([*places, r"(?<![\w.])/(?:home|Users)/[a-z]\w*/", *hosts]))
    found = []
    for path in _files():
        text = path.read_bytes().decode("utf-8", "ignore")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in forbidden.finditer(text)]
    assert found == []


def test_the_page_for_contributors_names_every_room() -> None:
    """The table of rooms has the layers of the doors, from above to below."""
    page = (ROOT / "AGENTS.md").read_text(encoding="utf-8").split("## Rooms", 1)[1].split("\n## ", 1)[0]
    table = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in page.splitlines() if line.startswith("| `")]
    doors = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
    layers = [layer.split(" | ") for layer in doors["layers"] if layer != "__main__"]
    assert [sorted(rooms) for rooms in table] == [sorted(rooms) for rooms in layers]


def test_the_cost_of_sealing_is_told_alike() -> None:
    """The share of steps a second that sealing costs is that of the measured table, on both pages that publish it."""
    privacy, performance = (
        " ".join((ROOT / f"docs/{name}.md").read_text().split()) for name in ("privacy", "performance")
    )
    shares = [round(100 * (1 - float(ratio))) for ratio in re.findall(r"\| (0\.\d\d) \| \d+ µs plain", privacy)]
    assert len(shares) == 3
    told = f"{min(shares)} to {max(shares)} % fewer steps a second"
    assert told in privacy
    assert told in performance
