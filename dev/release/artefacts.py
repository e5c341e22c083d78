"""The wheel and the sdist: built twice from the commit, and what is in them."""

from __future__ import annotations

import ast
import base64
import csv
import getpass
import hashlib
import io
import re
import socket
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dev.release.report import Failed, run

#: What an sdist has that no repository has.
_MADE: Final = {"PKG-INFO"}
#: Endings of what a build or a run leaves behind.
_LEFTOVERS: Final = (
    ".pyc",
    ".pyo",
    ".so",
    ".rdb",
    ".aof",
    ".sqlite",
    ".db",
    ".key",
    ".keys",
    ".pem",
    ".env",
    ".orig",
    ".rej",
)
#: Names of accounts and hosts that say nothing of this machine.
_COMMON: Final = {"root", "user", "ubuntu", "runner", "localhost", "nobody", "admin", "build"}


@dataclass(frozen=True)
class Artefacts:
    """Two files that were built together."""

    wheel: Path
    sdist: Path

    def digests(self) -> dict[str, str]:
        """The SHA-256 of each, by name."""
        return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in (self.wheel, self.sdist)}


def build(commit: str, source: Path, folder: Path, *, umask: str, zone: str) -> Artefacts:
    """Both files from a fresh clone in ``folder``, at a time, in a zone and under rights of its own."""
    tree, out = folder / "tree", folder / "dist"
    run("bash", "-c", f"umask {umask} && git clone --quiet --no-hardlinks '{source}' '{tree}'")
    run("git", "checkout", "--quiet", "--detach", commit, cwd=tree)
    epoch = run("git", "log", "-1", "--format=%ct", cwd=tree).stdout.strip()
    env = {"SOURCE_DATE_EPOCH": epoch, "TZ": zone, "PYTHONHASHSEED": umask}
    for kind in ("--wheel", "--sdist"):
        run(
            "bash",
            "-c",
            f"umask {umask} && exec '{sys.executable}' -m build --no-isolation {kind} --outdir '{out}'",
            cwd=tree,
            env=env,
        )
    return Artefacts(next(out.glob("*.whl")), next(out.glob("*.tar.gz")))


def same(first: Artefacts, second: Artefacts) -> str:
    """Both builds have the same bytes."""
    if first.digests() != second.digests():
        names = [name for name, digest in first.digests().items() if second.digests().get(name) != digest]
        raise Failed(f"the two builds differ: {', '.join(names)}")
    return ", ".join(f"{each.name} {each.stat().st_size:,} bytes" for each in (first.wheel, first.sdist))


def wheel_of_the_sdist(built: Artefacts, folder: Path) -> str:
    """The wheel that is built from the sdist is the wheel."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
        epoch = str(int(max(member.mtime for member in archive.getmembers())))
    tree = next((folder / "unpacked").iterdir())
    run(
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        folder,
        cwd=tree,
        env={"SOURCE_DATE_EPOCH": epoch},
    )
    made = folder / built.wheel.name
    if made.read_bytes() != built.wheel.read_bytes():
        raise Failed("the wheel that is built from the sdist has other bytes")
    return f"{hashlib.sha256(made.read_bytes()).hexdigest()}"


def contents(path: Path) -> dict[str, bytes]:
    """The files in a wheel or an sdist, by their names within it."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            if member.isfile():
                body = archive.extractfile(member)
                assert body is not None
                found[member.name.split("/", 1)[1]] = body.read()
            elif not member.isdir():
                raise Failed(f"{path.name}: {member.name} is neither a file nor a folder")
        return found


def strays(names: Mapping[str, bytes], tracked: set[str]) -> list[str]:
    """What an sdist has and the commit has not, and what no release has."""
    unknown = {name for name in names if name not in tracked} - _MADE
    return sorted(unknown | {name for name in names if name.endswith(_LEFTOVERS) or "__pycache__" in name})


def belongs(built: Artefacts, source: Path, commit: str) -> str:
    """The sdist has tracked files only; the wheel has the package, its prompts, its licence and a true RECORD."""
    tracked = set(run("git", "ls-tree", "-r", "--name-only", commit, cwd=source).stdout.splitlines())
    sdist, wheel = contents(built.sdist), contents(built.wheel)
    if found := strays(sdist, tracked):
        raise Failed(f"the sdist has what does not belong: {', '.join(found[:10])}")
    package = {name: body for name, body in sdist.items() if name.startswith("saga_engine/")}
    package |= {f"saga_engine/{name}": body for name, body in sdist.items() if name.startswith("planner_prompts/")}
    info = f"{'-'.join(built.wheel.name.split('-')[:2])}.dist-info/"
    given = {name: body for name, body in wheel.items() if not name.startswith(info)}
    if given != package:
        names = sorted({name for name in {*given, *package} if given.get(name) != package.get(name)})
        raise Failed(f"the wheel differs from the sources: {', '.join(names[:10])}")
    if missing := {f"{info}licenses/LICENSE", f"{info}entry_points.txt", "saga_engine/py.typed"} - set(wheel):
        raise Failed(f"the wheel lacks {', '.join(sorted(missing))}")
    recorded(wheel, info)
    return f"{len(wheel)} files in the wheel, {len(sdist)} in the sdist, all of the commit; RECORD holds"


def recorded(wheel: Mapping[str, bytes], info: str) -> None:
    """RECORD names each file of the wheel with its digest. Raises ``Failed``."""
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(wheel[f"{info}RECORD"].decode()))}
    for name, body in wheel.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        if name != f"{info}RECORD" and rows.get(name) != f"sha256={digest}":
            raise Failed(f"RECORD does not hold for {name}")


def machine_words(*paths: Path) -> list[str]:
    """What would name this machine in a file: its paths, its host and its account."""
    words = [str(each) for each in paths] + [socket.gethostname(), getpass.getuser()]
    home = str(Path.home())
    words += [home] if home not in ("/root", "/") else []
    return sorted({word for word in words if word not in _COMMON and len(word) > 3})


def traces(files: Mapping[str, bytes], words: list[str]) -> list[str]:
    """The files that hold one of the words, as a word of its own."""
    patterns = [
        re.compile(rb"(?<![A-Za-z0-9_.-])" + re.escape(word.encode()) + rb"(?![A-Za-z0-9_-])") for word in words
    ]
    return sorted(name for name, body in files.items() if any(pattern.search(body) for pattern in patterns))


def no_path_of_a_machine(built: Artefacts, words: list[str]) -> str:
    """Neither file names the machine that built it; in the sdist no owner has a name."""
    for path in (built.wheel, built.sdist):
        if found := traces(contents(path), words):
            raise Failed(f"{path.name} names this machine in {', '.join(found[:10])}")
    with tarfile.open(built.sdist) as archive:
        owners = {(each.uname, each.gname) for each in archive.getmembers()}
    if owners != {("", "")}:
        raise Failed(f"the sdist names owners: {owners}")
    return f"none of {len(words)} names"


def version_of(source: Path) -> str:
    """The version as the package says it."""
    tree = ast.parse((source / "saga_engine" / "_version.py").read_text(encoding="utf-8"))
    return next(str(ast.literal_eval(each.value)) for each in tree.body if isinstance(each, ast.Assign))


def one_version(built: Artefacts, source: Path) -> str:
    """The version stands in one place of the source; files, metadata and CHANGELOG agree with it."""
    version = version_of(source)
    if built.wheel.name.split("-")[1] != version or built.sdist.name != f"saga_engine-{version}.tar.gz":
        raise Failed(f"the files are not named after {version}")
    for path, name in ((built.wheel, f"saga_engine-{version}.dist-info/METADATA"), (built.sdist, "PKG-INFO")):
        if f"\nVersion: {version}\n" not in contents(path)[name].decode():
            raise Failed(f"{name} has another version")
    modules = (source / "saga_engine").rglob("*.py")
    places = [
        path for path in modules if re.search(rf"""["']{re.escape(version)}["']""", path.read_text(encoding="utf-8"))
    ]
    if [path.name for path in places] != ["_version.py"]:
        raise Failed(f"{version} stands in {', '.join(str(path.relative_to(source)) for path in places)}")
    return f"{version}, in saga_engine/_version.py; {changelog(source, version)}"


def changelog(source: Path, version: str) -> str:
    """CHANGELOG.md has a section of the version. Raises ``Failed``."""
    text = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(rf"^## \[{re.escape(version)}\](?: - (\S+))?$", text, re.MULTILINE)
    if heading is None:
        raise Failed(f"CHANGELOG.md has no section [{version}]")
    if heading[1] is None:
        raise Failed(f"the section [{version}] of CHANGELOG.md has neither a date nor 'unreleased'")
    return f"CHANGELOG has it ({heading[1]})"


def metadata(built: Artefacts) -> str:
    """What an index would refuse, or show wrongly."""
    done = run(sys.executable, "-m", "twine", "check", "--strict", built.wheel, built.sdist)
    return f"twine check --strict: {done.stdout.count('PASSED')} passed"
