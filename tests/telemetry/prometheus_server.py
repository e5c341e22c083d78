"""Debian's Prometheus for tests: a real one that scrapes, and its tool. No fixed port."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.support.servers import until


def need_prometheus() -> None:
    """Skip at a desk without Debian's prometheus; fail in CI, where it must be."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("prometheus is missing in CI")
        pytest.skip("prometheus is not installed (Debian: prometheus)")


def promtool(*args: str, given: str | None = None, folder: Path | None = None) -> str:
    """What Prometheus' own tool says about something that it accepts."""
    need_prometheus()
    ran = subprocess.run(["promtool", *args], input=given, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


class Prometheus:
    """A Prometheus that scrapes ``targets``: for each job its URL and a bearer token, if it needs one."""

    def __init__(self, folder: Path, targets: Mapping[str, tuple[str, str]]) -> None:
        need_prometheus()
        jobs: list[dict[str, Any]] = []
        for job, (url, token) in targets.items():
            address, _, path = url.removeprefix("http://").partition("/")
            jobs.append({"job_name": job, "metrics_path": f"/{path}", "static_configs": [{"targets": [address]}]})
            if token:
                jobs[-1]["authorization"] = {"credentials": token}
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        options = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(["prometheus", *options], cwd=folder, stdout=log, stderr=log)
        try:
            until(self._url, "Prometheus to listen")
        except BaseException:
            self.process.kill()
            raise
        self.client = httpx2.Client(base_url=self._url(), timeout=120, trust_env=False)

    def _url(self) -> str:
        assert self.process.poll() is None, self._log.read_text()
        found = re.search(r'"Listening on" address=(\S+)', self._log.read_text())
        return f"http://{found[1]}" if found else ""

    def value(self, expression: str) -> float | None:
        """The one value of an expression now; None: it has none yet."""
        answer = self.client.get("/api/v1/query", params={"query": expression}).json()
        if answer["status"] != "success":
            return None  # it is still starting
        found = answer["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait(120)
