"""The image, built from the Containerfile's own steps and used: a worker and the server run in it, as no root."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.servers import DebianRedis, until

ROOT = Path(__file__).parents[2]
TOOLS = '''
import time
from saga_engine import tool


@tool(undo="cancel")
def book(item: str) -> dict:
    """Book it."""
    time.sleep(1 if item == "slow" else 0)
    return {"ref": item}


@tool
def cancel(ref: str) -> None:
    """Cancel it."""
'''
BUILD_S = 1800
pytestmark = [
    pytest.mark.slow,
    pytest.mark.debian_redis,
    pytest.mark.timeout(2 * BUILD_S),
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("buildah") or not shutil.which("mmdebstrap"),
        reason="needs root, buildah and mmdebstrap",
    ),
]


class Builder:
    """Buildah with a store of its own; no daemon, no privileges of a container runtime."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = [
            "buildah",
            "--storage-driver",
            "vfs",
            "--root",
            str(folder / "s"),
            "--runroot",
            str(folder / "r"),
        ]

    def __call__(self, *args: str) -> str:
        done = subprocess.run([*self._command, *args], capture_output=True, text=True, timeout=BUILD_S, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def base(self) -> str:
        """An image with Debian's Python, in place of the one that the Containerfile names."""
        files = self._folder / "base.tar"
        packages = "--include=python3,python3-venv,ca-certificates"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", packages, "bookworm", str(files)]
        subprocess.run(command, check=True, timeout=BUILD_S, capture_output=True)
        name = self("from", "scratch").strip()
        self("add", "--quiet", name, str(files), "/")
        self("commit", "--quiet", "--rm", name, "localhost/base")
        files.unlink()
        return "localhost/base"

    def inside(self, container: str, *args: str, shares: list[str] | None = None, **environ: str) -> list[str]:
        """The command line that runs ``args`` in a container, with folders of this machine."""
        shared = [part for share in shares or () for part in ("--volume", share)]
        told = [part for name, value in environ.items() for part in ("--env", f"{name}={value}")]
        return [*self._command, "run", "--isolation", "chroot", *shared, *told, container, "--", *args]


def wheels(folder: Path) -> list[str]:
    """What the image installs, fetched by the pip of this machine, which knows where from.

    Conditions are left out, because the Python of the image may be another one than that of this machine.
    """
    folder.mkdir()
    wanted = folder / "wanted.txt"
    locked = (ROOT / "dev" / "requirements" / "image.txt").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in locked.splitlines() if "== 'win32'" not in line and "== 'emscripten'" not in line]
    wanted.write_text("\n".join(re.sub(r" ;.*?(?= +--hash)", "", line) for line in lines))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(wanted)], check=True, timeout=BUILD_S)
    subprocess.run([*pip, "hatchling"], check=True, timeout=BUILD_S)
    configured = folder / "pip.conf"
    configured.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    return ["--volume", f"{folder}:/wheels:ro", "--volume", f"{configured}:/etc/pip.conf:ro"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, str]]:
    folder = tmp_path_factory.mktemp("image")
    builder = Builder(folder)
    base = builder.base()
    shares = wheels(folder / "wheels")
    builder(
        *("bud", "--quiet", "--isolation", "chroot", "--build-arg", f"BASE={base}", *shares),
        *("-f", "deploy/container/Containerfile", "-t", "saga-engine", str(ROOT)),
    )
    yield builder, builder("from", "localhost/saga-engine").strip()
    builder("rm", "--all")
    shutil.rmtree(folder, ignore_errors=True)


def test_it_runs_as_no_root_and_writes_nowhere(image: tuple[Builder, str]) -> None:
    """The user is the number of the Kubernetes files; the package, the tools' folder and the root are not its own."""
    builder, container = image
    script = (
        "id -u; for place in / /app /opt/saga/lib; do touch $place/x 2>/dev/null && echo $place; done; saga --version"
    )
    done = subprocess.run(builder.inside(container, "sh", "-c", script), capture_output=True, text=True, check=True)
    number, version, *_ = done.stdout.splitlines()
    assert number == "10001"
    assert version.startswith("saga_engine ")


def test_a_worker_and_the_server_run_a_saga_in_it(image: tuple[Builder, str], tmp_path: Path) -> None:
    """A plan goes in at the server, a worker in another container ends it, probes answer, and SIGTERM drains both."""
    builder, container = image
    (tmp_path / "tools").mkdir(mode=0o755)
    (tmp_path / "tools" / "tools.py").write_text(TOOLS)
    with DebianRedis(unixsocketperm="777") as redis:
        shares = [f"{tmp_path / 'tools'}:/app:ro", f"{redis.socket}:/tmp/redis"]
        places = {"SAGA_STORE": "unix:///tmp/redis", "SAGA_TOOLS": "tools.py"}

        def saga(*args: str) -> list[str]:
            return builder.inside(container, "saga", *args, shares=shares, **places)

        made = subprocess.run(
            saga("token", "create", "Ada", "--scope", "admin", "--json"), capture_output=True, text=True, check=True
        )
        token = json.loads(made.stdout)["token"]
        with (
            started(saga("serve", "--host", "0.0.0.0", "--port", "0"), "http://") as (server, url),
            started(saga("worker", "--metrics", "127.0.0.1:0"), "metrics at ") as (worker, metrics),
        ):
            # A probe of Kubernetes names the address of the pod as the host.
            assert status(f"{url}/readyz", host="10.1.2.3:8800") == 200
            probe = metrics.removesuffix("/metrics") + "/readyz"
            until(lambda: status(probe, host="10.1.2.4:9464") == 200, "the worker to be ready")
            request = urllib.request.Request(
                f"{url}/v1/sagas?wait=30",
                json.dumps({"plan": {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "slow"}}]}}).encode(),
                {"authorization": f"Bearer {token}", "content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.load(answer)["status"] == "COMPLETED"
            for process in (worker, server):
                os.kill(inner(process), signal.SIGTERM)
            assert [process.wait(60) for process in (worker, server)] == [0, 0]


def inner(process: subprocess.Popen[str]) -> int:
    """The pid of the `saga` that a builder runs for us: its process group is the builder's."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(entry.name)) == process.pid and (entry / "cmdline").read_bytes().startswith(
                b"/opt/saga/bin/python"
            ):
                return int(entry.name)
        except OSError:
            continue  # it has ended meanwhile
    raise AssertionError("saga runs no more")


def status(url: str, host: str) -> int:
    request = urllib.request.Request(url, headers={"host": host})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@contextmanager
def started(command: list[str], mark: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command in a container, and the URL that it prints behind ``mark``."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + 120
        for line in process.stdout:
            if mark in line or time.monotonic() > deadline:
                break
        yield process, next(word for word in line.split() if word.startswith("http://")).rstrip(";")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
