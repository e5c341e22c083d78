"""Builds the documentation site into ``build/site``: English at its root, Chinese under ``zh/``. Run by ``make docs``.

Every warning of Sphinx is an error: a link that leads nowhere, a page that is not in the navigation. Nothing is
fetched, at build time or by a reader's browser.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from dev.website import stage
from saga_engine import __version__

HERE = Path(__file__).parent


def build(out: Path, languages: tuple[str, ...] = stage.LANGUAGES, root: Path = stage.ROOT) -> None:
    """The site in ``out``, which is emptied first. Raises ``CalledProcessError`` if Sphinx has something to say."""
    shutil.rmtree(out, ignore_errors=True)
    work = out.with_name(out.name + "-work")
    running = []
    for language in languages:
        source = work / language
        stage.Stage(source, language, root).lay_out()
        target = out if language == "en" else out / language
        command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-E"]
        command += ["-c", str(HERE), "-d", str(work / f"{language}-doctrees"), str(source), str(target)]
        env = os.environ | {"SAGA_DOCS_LANGUAGE": language, "SAGA_DOCS_VERSION": __version__}
        running.append((command, subprocess.Popen(command, env=env)))
    ends = [(command, process.wait()) for command, process in running]
    for command, code in ends:
        if code:
            raise subprocess.CalledProcessError(code, command)
    shutil.rmtree(work)


def main() -> int:
    """Build where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=stage.ROOT, help="the folder that has docs/")
    parser.add_argument("--out", type=Path, default=stage.ROOT / "build" / "site")
    given = parser.parse_args()
    try:
        build(given.out.resolve(), root=given.root.resolve())
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(f"the site begins at {os.path.relpath(given.out / 'index.html')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
