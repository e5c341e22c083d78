"""Tools named by module or by file, as the command line gives them."""

import sys

import pytest

from saga_engine.errors import ToolInvalid
from saga_engine.tools.loader import load_tools

SOURCE = """
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry

@tool
def book(flight: str): ...

@tool
def cancel(flight: str): ...

def undecorated(x): ...

alias = book
ONE = cancel
MANY = [book, undecorated]
REGISTRY = ToolRegistry(cancel)
NOTHING = []

class Desk:
    pair = (book, cancel)

def make():
    return [cancel]

def make_nothing():
    return 7

def needs(x):
    return [book]

async def later():
    return [book]
"""


@pytest.fixture(autouse=True)
def _tidy_imports():
    """What a test imports is forgotten after it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def base(tmp_path):
    (tmp_path / "travel_tools_x.py").write_text(SOURCE)
    (tmp_path / "pack_x").mkdir()
    (tmp_path / "pack_x" / "__init__.py").write_text("")
    (tmp_path / "pack_x" / "inner.py").write_text(SOURCE)
    return tmp_path


def names(tools):
    return [made.name for made in tools]


@pytest.mark.parametrize(
    "target", ["travel_tools_x", "travel_tools_x.py", "./travel_tools_x.py", "pack_x.inner", "pack_x/inner.py"]
)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ["book", "cancel"]),
        (":book", ["book"]),
        (":ONE", ["cancel"]),
        (":MANY", ["book", "undecorated"]),
        (":REGISTRY", ["cancel"]),
        (":make", ["cancel"]),
        (":Desk.pair", ["book", "cancel"]),
        (":", ["book", "cancel"]),
    ],
)
def test_every_form_of_reference_finds_its_tools(base, target, name, expected):
    """Module or file, alone or with a name: a tool, a list, a registry, or a function that makes them."""
    assert names(load_tools(target + name, base)) == expected


def test_absolute_paths_and_colons_in_folders_work(base):
    """A colon inside a path separates nothing."""
    odd = base / "a:b"
    odd.mkdir()
    (odd / "tools.py").write_text(SOURCE)
    assert names(load_tools(str(odd / "tools.py"), base)) == ["book", "cancel"]
    assert names(load_tools("a:b/tools.py:ONE", base)) == ["cancel"]
    with pytest.raises(ToolInvalid):
        load_tools("a:b/none.py", base)


def test_a_file_imports_its_neighbours_and_shadows_nothing(base):
    """A tools file called ``json.py`` is imported under a private name, and may import the file beside it."""
    (base / "neighbour_x.py").write_text("NAME = 'from next door'\n")
    (base / "json.py").write_text(
        "import neighbour_x\nfrom saga_engine.tools.decorator import tool\n"
        "@tool(description=neighbour_x.NAME)\ndef act(): ...\n"
    )
    before = sys.modules["json"]
    [made] = load_tools("json.py", base)
    assert made.description == "from next door"
    assert sys.modules["json"] is before


def test_the_same_file_twice_is_the_same_tools(base):
    """Two references into one file do not make two different tools of one name; a changed file is read again."""
    one, two = load_tools("travel_tools_x.py:book", base), load_tools("travel_tools_x.py:alias", base)
    assert one[0] is two[0]
    (base / "travel_tools_x.py").write_text(SOURCE.replace("def book(flight", "def book(flight_number"))
    [changed] = load_tools("travel_tools_x.py:book", base)
    assert changed is not one[0]


@pytest.mark.parametrize(
    ("reference", "said", "hinted"),
    [
        ("none.py", "not there", "path of a Python file"),
        ("pack_x/", "a folder", "path of a Python file"),
        ("no_such_module_x", "No module named 'no_such_module_x'", "check the name"),
        ("pack_x.none", "No module named 'pack_x.none'", "check the name"),
        ("", "names no module", "pkg.module"),
        (":NAME", "names no module", "pkg.module"),
        ("not a module", "neither a module nor an existing file", "pkg.module"),
        ("travel_tools_x.py:NOBODY", "no 'NOBODY'", "book"),
        ("travel_tools_x.py:Desk.none", "no 'Desk.none'", "book"),
        ("travel_tools_x.py:NOTHING", "has no tools", "@tool"),
        ("travel_tools_x.py:SOURCE_TEXT", "no 'SOURCE_TEXT'", "book"),
        ("travel_tools_x.py:make_nothing", "returned int", "@tool"),
        ("travel_tools_x.py:needs", "needs() failed", "a function that returns"),
        ("travel_tools_x.py:later", "returned coroutine", "@tool"),
        ("travel_tools_x.py:undecorated", "failed", "a function that returns"),
        ("empty_x.py", "no tools", "@tool"),
        ("broken_x.py", "SyntaxError", "traceback"),
        ("raises_x.py", "RuntimeError: at import", "traceback"),
        ("exits_x.py", "SystemExit", "__main__"),
        ("lacks_x.py", "No module named 'not_installed_x'", "install 'not_installed_x'"),
        ("invalid_x.py", "timeout_s=-1", "positive"),
    ],
)
def test_what_cannot_be_loaded_says_why_and_what_to_do(base, reference, said, hinted):
    """Every failure is ``ToolInvalid`` with the original message and a hint; nothing half-loaded stays behind."""
    (base / "empty_x.py").write_text("x = 1\n")
    (base / "broken_x.py").write_text("def (:\n")
    (base / "raises_x.py").write_text("raise RuntimeError('at import')\n")
    (base / "exits_x.py").write_text("import sys\nsys.exit(3)\n")
    (base / "lacks_x.py").write_text("import not_installed_x\n")
    (base / "invalid_x.py").write_text(
        "from saga_engine.tools.decorator import tool\n@tool(timeout_s=-1)\ndef act(): ...\n"
    )
    for _ in range(2):
        with pytest.raises(ToolInvalid) as caught:
            load_tools(reference, base)
        assert said in caught.value.message
        assert hinted in (caught.value.hint or "")
