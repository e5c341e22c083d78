"""The booking example: its world keeps what it promises, and the demo agrees with it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "booking"


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"booking_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


world_module = _load("world")


@pytest.fixture
def world(tmp_path: Path) -> Any:
    return world_module.World(tmp_path / "world.db")


def test_the_articles_plan_is_untouched() -> None:
    """The plan of the source article, byte for byte."""
    data = (FOLDER / "travel_request_001.json").read_bytes()
    assert sha256(data).hexdigest() == "e53e85b1d68e181a753d2e21ff2dbc16caa35447c713cd65b97aadc7db72e753"


def test_a_request_is_booked_once(world: Any) -> None:
    """The same request id gets the first reference and no second booking."""
    first = world.book("hotel", "Hilton", {}, "r1")
    assert world.book("hotel", "Hilton", {}, "r1") == first
    assert len(world.bookings(None)) == 1
    assert [row["outcome"] for row in world.requests()] == ["applied", "repeat"]


def test_a_full_hotel_refuses_and_a_cancelled_room_is_free_again(world: Any) -> None:
    """Rooms are counted, down and up."""
    world.set_left("hotel", "Hilton", 1)
    ref = world.book("hotel", "Hilton", {}, "r1")
    with pytest.raises(world_module.Refused, match="full") as refused:
        world.book("hotel", "Hilton", {}, "r2")
    assert refused.value.code == "sold_out"
    for request in ("c1", "c1", "c2"):
        assert world.cancel("hotel", request, ref=ref) == "cancelled"
    world.book("hotel", "Hilton", {}, "r3")
    with pytest.raises(world_module.Refused):
        world.book("hotel", "Hilton", {}, "r4")


def test_what_was_cancelled_before_it_came_is_refused(world: Any) -> None:
    """A request held up on its way cannot book what was cancelled by its id meanwhile."""
    assert world.cancel("flight", "c1", booked_by="r1") == "never came"
    with pytest.raises(world_module.Refused, match="cancelled"):
        world.book("flight", "CA1234", {}, "r1")
    assert world.bookings() == []
    assert world.find("flight", "r1") is None


def test_rooms_are_never_sold_twice(tmp_path: Path) -> None:
    """Of many who want the last rooms at once, as many get one as there are, and nobody meets an error."""
    path = tmp_path / "world.db"
    world_module.World(path).set_left("hotel", "Hilton", 20)

    def want(number: int) -> bool:
        try:
            world_module.World(path).book("hotel", "Hilton", {}, f"r{number}")
        except world_module.Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(want, range(60))) == 20


def test_the_demo_agrees_in_every_scene(tmp_path: Path) -> None:
    """``make demo`` ends well, and leaves no server behind; its folder stays, and it says how to look at it."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "demo.py")], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("agreed") == 6
    (kept,) = tmp_path.iterdir()
    assert f"serve --auth none --store embedded://{kept / 'store'}" in done.stdout
