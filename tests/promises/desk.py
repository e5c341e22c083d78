"""What ``make test`` alone sees of all mutations: ``python -m tests.promises.desk``.

A mutation is seen at the desk if a test that ``make test`` runs fails under it. The command asks the cheapest witness
first:

1. The test that is named for the mutation. ``tests/promises`` proves that it fails, so if ``make test`` runs it (with
   the cases that the row means), nothing has to be run again, but for a property, of which the desk tries fewer examples,
   and for what plays seeds or kills at some points.
   For an engine that is broken on purpose this is the hunt of ``tests/core/test_mutants.py``.
2. Else the tests of the desk near the change, in a copy of the tree, until the first one fails: those of the rooms that
   are changed, then the simulation and the scenarios, then the file of the named test.

What neither sees is listed, with the test of ``make check`` or ``make test-long`` that does. ``--write`` puts the list
into ``tests/promises/README.md``. ``--dry`` runs nothing: it says what step 1 settles.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.expression import Expression
from hypothesis import is_hypothesis_test

from tests import tiers
from tests.core.hunts import HUNTS
from tests.promises.breaking import SUITES, Copy, Mutation, environment
from tests.promises.mutations import MUTATIONS
from tests.support.mutating import place

PAGE = Path(__file__).with_name("README.md")
#: The test that hunts for engines that are broken on purpose.
_HUNT = "tests/core/test_mutants.py"
#: What sees most of the engine, for its time.
_WIDE = (
    "tests/core/test_simulation.py",
    "tests/scenarios",
    "tests/sagas/test_api.py",
    "tests/sessions/test_sessions.py",
)


class _Desk:
    """Collects what ``make test`` would run: not what it deselects, and not what it skips."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.properties: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests that are left."""
        left = [item for item in session.items if not any(item.iter_markers("skip"))]
        self.nodes = [item.nodeid for item in left]
        self.properties = {
            item.nodeid
            for item in left
            if is_hypothesis_test(getattr(item, "obj", None)) or any(item.iter_markers(tiers.SEEDS))
        }


def desk(arguments: Sequence[str] = ()) -> list[str]:
    """The ids of the tests that pytest runs with these arguments."""
    return _collected(arguments).nodes


def _collected(arguments: Sequence[str]) -> _Desk:
    found = _Desk()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = pytest.main(["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments], plugins=[found])
    assert code == 0, said.getvalue()[-2000:]
    return found


@dataclass
class Sight:
    """Who sees what, by the words for the mutation and its witness."""

    named: list[str] = field(default_factory=list)
    near: list[tuple[str, str]] = field(default_factory=list)
    unseen: list[tuple[str, str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part that the desk sees, of 1."""
        seen = len(self.named) + len(self.near)
        return seen / (seen + len(self.unseen))


def at_desk(row: Mutation, nodes: Sequence[str]) -> bool:
    """Whether the desk runs the named test, with a case that the row means."""
    path, name = row.test.split("::")
    wanted = row.only or ("embedded" if path in SUITES else "")
    home = SUITES.get(path, path)
    said = Expression.compile(wanted) if wanted else None
    for node in nodes:
        file, _, case = node.partition("::")
        if file != home or case.partition("[")[0].rpartition("::")[2] != name:
            continue
        if said is None or said.evaluate(lambda word, **_: word.lower() in node.lower()):  # noqa: B023 - used at once
            return True
    return False


def near(files: Sequence[Path], named: str, nodes: Sequence[str]) -> list[str]:
    """The files of the desk that are asked, nearest first."""
    rooms = [f"tests/{file.parts[1]}/" for file in files if file.parts[0] == "saga_engine"]
    words = [*rooms, *_WIDE, named.partition("::")[0]]
    known = dict.fromkeys(node.partition("::")[0] for node in nodes)
    return list(dict.fromkeys(file for word in words for file in known if file.startswith(word)))


def _falls(tree: Copy, row: Mutation, tests: Sequence[str], limit_s: int) -> str:
    """The first test that fails under a mutation; empty: none does in the time."""
    with tree.broken(row):
        command = [
            sys.executable,
            "-m",
            "pytest",
            *tests,
            "--tier",
            "desk",
            "-n",
            "0",
            "-x",
            "-q",
            "--tb",
            "no",
            "-rfE",
        ]
        command += ["-p", "no:cacheprovider", "--timeout", "120"]
        try:
            done = subprocess.run(
                command,
                cwd=tree.folder,
                env=environment(tree.folder),
                capture_output=True,
                text=True,
                check=False,
                timeout=limit_s,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return ""
    lines = [
        line.partition(" ")[2].partition(" - ")[0]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    return lines[0] if done.returncode and lines else ""


def rows() -> Iterator[tuple[Mutation, bool]]:
    """All mutations, and whether each is an engine that is broken on purpose."""
    for row in MUTATIONS:
        yield row, False
    for kind, mutants in HUNTS.items():
        for name, mutant in mutants.items():
            yield Mutation(_HUNT, f"{kind.__name__}: {name}", mutant.changes), True


def look(nodes: Sequence[str], whole: Sequence[str], *, dry: bool, limit_s: int, part: str = "") -> Sight:
    """Ask for each mutation who sees it; ``whole``: the tests that see at the desk what they see in CI."""
    sight = Sight()
    hunts = {node.partition("[")[2].removesuffix("]") for node in whole if node.startswith(_HUNT)}
    with tempfile.TemporaryDirectory() as folder:
        tree = None if dry else Copy(Path(folder) / "tree")
        for row, engine in rows():
            if part not in row.id:
                continue
            if row.breaks.partition(": ")[2] in hunts if engine else at_desk(row, whole):
                sight.named.append(row.id)
                continue
            files = sorted({place(old) for old, _ in row.changes})
            asked = [near(files, row.test, nodes)]
            if not engine and at_desk(row, nodes):
                asked.insert(0, [row.test])
            witness = ""
            while tree is not None and asked and not witness:
                witness = _falls(tree, row, asked.pop(0), limit_s)
            if witness.partition("[")[0] == row.test:
                sight.named.append(row.id)
            elif witness:
                sight.near.append((row.id, witness))
            else:
                sight.unseen.append((row.id, row.test))
            sys.stderr.write(f"{row.id}: {witness or 'not seen'}\n")
    return sight


def page(sight: Sight) -> str:
    """The page about what the desk sees."""
    total = len(sight.named) + len(sight.near) + len(sight.unseen)
    lines = [
        "# What `make test` alone sees",
        "",
        "Written by `python -m tests.promises.desk --write`, whose docstring says how it is measured.",
        "",
        f"`make test` sees {total - len(sight.unseen)} of {total} mutations, {sight.share:.1%}: {len(sight.named)} by",
        f"the test that is named for them, and {len(sight.near)} by another one near the change. They are those of",
        "`tests/promises`, and the engines of `tests/core` that are broken on purpose.",
    ]
    if sight.near:
        lines += ["", "| seen by another test | by |", "|---|---|"]
        lines += [f"| {name} | `{witness}` |" for name, witness in sight.near]
    if sight.unseen:
        lines += ["", "| not seen at the desk | seen in CI or by `make test-long` |", "|---|---|"]
        lines += [f"| {name} | `{test}` |" for name, test in sight.unseen]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """Measure; 1: the desk sees less than 95 %."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.promises.desk", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--dry", action="store_true", help="run nothing: count what the named tests see")
    parser.add_argument("--write", action="store_true", help="write tests/promises/README.md")
    parser.add_argument("--limit-s", type=int, default=300, help="the time for one mutation (default: 300)")
    parser.add_argument("--part", default="", help="only the mutations whose name has this text")
    parser.add_argument(
        "pytest",
        nargs="*",
        default=["--tier", "desk"],
        help="what chooses the tests of make test, for pytest; after --",
    )
    options: Any = parser.parse_args(argv)
    found = _collected(options.pytest)
    whole = [node for node in found.nodes if node not in found.properties]
    sight = look(found.nodes, whole, dry=options.dry, limit_s=options.limit_s, part=options.part)
    if options.write:
        PAGE.write_text(page(sight), encoding="utf-8")
    sys.stdout.write(page(sight))
    return 0 if sight.share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
