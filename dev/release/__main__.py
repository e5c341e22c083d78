"""``python -m dev.release``: every check, one line each, and the files to publish in ``dist``.

It works on the last commit, in fresh clones. Several minutes; it writes only to ``dist`` and to temporary folders.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from dev.release import artefacts, environments, licences, naming, typing_checks
from dev.release.artefacts import Artefacts
from dev.release.report import Failed, Report, run

ROOT = Path(__file__).parents[2]


def built(report: Report, commit: str, work: Path, words: list[str]) -> Artefacts | None:
    """The first section: the two files, and what is in them. None if they cannot be built."""
    made: list[Artefacts] = []

    def twice() -> str:
        for number, (umask, zone) in enumerate((("022", "UTC"), ("077", "Asia/Shanghai"))):
            made.append(artefacts.build(commit, ROOT, work / str(number), umask=umask, zone=zone))
        return artefacts.same(*made)

    if not report.check("built twice, the same bytes", twice):
        return None
    first, tree = made[0], work / "0" / "tree"
    report.check("the wheel of the sdist is the wheel", artefacts.wheel_of_the_sdist, first, work)
    report.check("nothing that does not belong", artefacts.belongs, first, ROOT, commit)
    report.check("no path of a machine", artefacts.no_path_of_a_machine, first, words)
    report.check("one version", artefacts.one_version, first, tree)
    report.check("metadata", artefacts.metadata, first)
    report.check("the name", naming.name, tree, artefacts.version_of(tree))
    return first


def environments_of(report: Report, wheel: Path, found: list[environments.Python], named: list[str]) -> None:
    """The second section: empty environments on each Python."""
    for python in found:
        for extra in ["", *named]:
            name = f"[{extra}] alone" if extra else "base, no extras"
            report.check(f"Python {python.version}, {name}", environments.installed, python, wheel, extra)
    if absent := environments.missing(found, ROOT):
        report.say(f"note   not on this machine, and so not tested: Python {', '.join(absent)}")


def everything(report: Report, first: Artefacts, work: Path, commit: str, words: list[str]) -> list[str]:
    """The third section: types, licences and the bill, in an environment with all extras but those that need their own.

    The list of licences, of all of them. The bill has the first environment alone.
    """
    python = environments.pythons()[0].path
    beside = [each for each in environments.extras(ROOT) if each not in environments.ALONE]
    inside = environments.environment(python, work / "all", first.wheel, ",".join(beside))
    for name in ("mypy", "pyright"):
        (work / name).mkdir()
        report.check(f"types, {name}", getattr(typing_checks, name), inside, work / "0" / "tree", work / name)
    alone = [environments.environment(python, work / each, first.wheel, each) for each in environments.ALONE]
    packages = sorted({package for each in (inside, *alone) for package in licences.installed(each)})
    report.check("licences", licences.licences, packages)
    epoch = run("git", "log", "-1", "--format=%ct", commit, cwd=ROOT).stdout.strip()
    version = artefacts.version_of(work / "0" / "tree")
    report.check("bill of materials", licences.bill, inside, work / "0" / "tree", version, epoch, ROOT / "dist", words)
    return ["", "Licences:", *licences.table(packages)]


def clean(commit: str) -> str:
    """The tree has nothing that is not in the commit."""
    if changed := run("git", "status", "--porcelain", cwd=ROOT).stdout.splitlines():
        raise Failed(f"{len(changed)} changes are not committed, and not in what is built")
    return commit[:12]


def main() -> int:
    """Run all checks; 1 if one did not hold."""
    parser = argparse.ArgumentParser(prog="python -m dev.release", description=__doc__)
    parser.add_argument("--extra", action="append", help="only these extras (default: all)")
    parser.add_argument(
        "--python", action="append", help="only these minor versions, such as 3.13 (default: all found)"
    )
    chosen = parser.parse_args()
    found = [
        each for each in environments.pythons() if not chosen.python or each.version.rpartition(".")[0] in chosen.python
    ]
    named = [each for each in environments.extras(ROOT) if not chosen.extra or each in chosen.extra]
    out, report, more = ROOT / "dist", Report(), [""]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    commit = run("git", "rev-parse", "HEAD", cwd=ROOT).stdout.strip()
    report.check("the tree is the commit", clean, commit)
    with tempfile.TemporaryDirectory(prefix="saga-release-") as text:
        work = Path(text)
        words = artefacts.machine_words(ROOT, work, Path(sys.prefix))
        first = built(report, commit, work, words)
        if first is not None:
            for each in (first.wheel, first.sdist):
                shutil.copy(each, out)
            environments_of(report, first.wheel, found, named)
            more = everything(report, first, work, commit, words)
            more += ["", "SHA-256:", *(f"{digest}  {name}" for name, digest in first.digests().items())]
    report.say(f"{len([line for line in report.lines if line[:2] == 'ok'])} passed, {report.failures} failed")
    report.write(out / "release-check.txt", more)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
