"""Debian's Chromium for tests of the console, and the rules of accessibility that it checks."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from tests.support.servers import GIVE_UP_S

CHROMIUM = "/usr/bin/chromium"
#: What a browser is started with: no sandbox, because tests may run as root.
ARGUMENTS = ["--no-sandbox"]
#: axe-core is fetched: its licence is another than ours.
AXE = "axe-core@4.14.1"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"


def need_chromium() -> None:
    """Skip at a desk without Chromium; fail in CI, where it must be."""
    if not Path(CHROMIUM).exists():
        missing(f"{CHROMIUM} is not installed")


def missing(what: str) -> None:
    """What a test needs is not here: an error in CI, at a desk no more than a test that is skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser for one test that runs its server in the same event loop."""
    need_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


def axe(config: pytest.Config) -> str:
    """The text of axe-core. It is fetched once, and kept with what pytest remembers of this tree."""
    kept = config.cache.mkdir("axe-core") / f"{AXE}.js"
    if kept.exists() and (known := kept.read_bytes()) and hashlib.sha256(known).hexdigest() == AXE_SHA256:
        return known.decode()
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is not installed, and fetches axe-core")
    folder = kept.with_suffix(f".{os.getpid()}")
    folder.mkdir(exist_ok=True)
    try:
        command = [str(npm), "pack", "--ignore-scripts", "--loglevel=error", AXE]
        fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=GIVE_UP_S, check=False)
        if fetched.returncode != 0:
            missing(f"axe-core cannot be fetched here: {fetched.stderr[-300:]}")
        with tarfile.open(next(folder.glob("*.tgz"))) as archive:
            source = archive.extractfile("package/axe.min.js")
            assert source is not None
            found = source.read()
        assert hashlib.sha256(found).hexdigest() == AXE_SHA256, hashlib.sha256(found).hexdigest()
        (folder / "axe.js").write_bytes(found)
        (folder / "axe.js").replace(kept)
    finally:
        shutil.rmtree(folder)
    return found.decode()
