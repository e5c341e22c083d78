"""The image, the compose file and the Kubernetes files fit the command line, the package and each other."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from saga_engine.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
COMPOSE = DEPLOY / "container" / "compose.yaml"
BASE = DEPLOY / "kubernetes" / "base"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile and their arguments; lines that are continued are joined."""
    text = re.sub(r"\\\n\s*", "", CONTAINERFILE.read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def objects() -> list[dict[str, Any]]:
    """The objects of the Kubernetes base."""
    return [each for name in ("worker.yaml", "server.yaml") for each in yaml.safe_load_all((BASE / name).read_text())]


def command_lines() -> list[list[str]]:
    """What is started in a container, after `saga`."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    composed = [services[name]["command"] for name in ("worker", "server")]
    kept = [each for each in objects() if each["kind"] == "Deployment"]
    return [*composed, *(each["spec"]["template"]["spec"]["containers"][0]["args"] for each in kept)]


@pytest.mark.parametrize("line", command_lines(), ids=shlex.join)
def test_a_container_starts_a_command_that_exists(line: list[str]) -> None:
    """The CLI accepts each: command, options and their values."""
    group = typer.main.get_command(app)
    name, command, rest = group.resolve_command(group.make_context("saga", [], resilient_parsing=True), line)
    assert command is not None, name
    command.make_context(name, [str(each) for each in rest])


def test_the_builder_gets_what_it_copies() -> None:
    """Every source of a COPY is in the repository, and the ignore file lets it through."""
    sources = [
        part for name, rest in instructions() if name == "COPY" and "--from" not in rest for part in rest.split()[:-1]
    ]
    let = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    assert {"saga_engine", "planner_prompts", "pyproject.toml"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == each or source.startswith(f"{each}/") for each in let), source


def test_nothing_runs_as_root() -> None:
    """The image names a user by its number, and Kubernetes runs that one, without privileges and with a root that is read only."""
    user = [rest for name, rest in instructions() if name == "USER"][-1]
    assert user == "10001:10001"
    for each in objects():
        if each["kind"] == "Deployment":
            pod = each["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"]
            assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == user
            (inside,) = (container["securityContext"] for container in pod["containers"])
            assert inside["readOnlyRootFilesystem"]
            assert inside["capabilities"] == {"drop": ["ALL"]}
            assert not inside["allowPrivilegeEscalation"]


def test_probes_ask_ports_that_are_served() -> None:
    """Each probe names a port of its container that the image exposes; nothing restarts a worker that lives."""
    exposed = {int(port) for name, rest in instructions() if name == "EXPOSE" for port in rest.split()}
    for each in objects():
        if each["kind"] != "Deployment":
            continue
        (container,) = each["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert set(ports.values()) <= exposed
        probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
        assert {probe["httpGet"]["port"] for probe in probes.values()} <= set(ports)
        assert {probe["httpGet"]["path"] for probe in probes.values()} <= {"/healthz", "/readyz"}
        assert ("livenessProbe" in probes) == (container["name"] == "server")


def test_the_first_token_is_made_where_something_runs_without_one() -> None:
    """A server beyond the loopback ends without a token: the documented command enters a worker's container."""
    told = [ROOT / "docs/deployment.md", DEPLOY / "kubernetes/example/kustomization.yaml"]
    texts = [path.read_text(encoding="utf-8") for path in told]
    entered, other = (re.findall(r"kubectl exec deploy/(\S+) -- saga token create", text) for text in texts)
    assert entered == other
    (found,) = (each for each in objects() if (each["kind"], each["metadata"]["name"]) == ("Deployment", entered[0]))
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "worker"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_the_example() -> None:
    """The overlay sets image, replicas and host of the base's objects."""
    command = ["kubectl", "kustomize", str(DEPLOY / "kubernetes" / "example")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept = {each["metadata"]["name"]: each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Deployment"}
    assert {name: each["spec"]["replicas"] for name, each in kept.items()} == {"saga-worker": 4, "saga-server": 2}
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in kept.values()}
    assert images == {"registry.example.com/booking:1"}
