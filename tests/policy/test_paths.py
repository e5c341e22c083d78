"""Paths in params, attacked: what counts is where they lead."""

import os

import pytest

from saga_engine.policy.paths import inside
from tests.policy.world import both


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A folder that may be used, its neighbours, and links between them. It is the working folder, too."""
    for folder in ("data/deep", "data-evil", "other/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/file").write_text("mine")
    (tmp_path / "other/secret").write_text("not mine")
    (tmp_path / "data/out").symlink_to(tmp_path / "other")
    (tmp_path / "data/leak").symlink_to("../other/secret")
    (tmp_path / "data/dangling").symlink_to(tmp_path / "other/new")
    (tmp_path / "data/loop").symlink_to("loop")
    (tmp_path / "data/self").symlink_to(".")
    (tmp_path / "data/twisted").symlink_to(tmp_path / "other/deep")
    (tmp_path / "into").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


INSIDE = [
    "data",
    "data/",
    "data/file",
    "data/new/file",
    "data/./file",
    "data//file",
    "./data/file",
    "data/deep/../file",
    "other/../data/file",
    "into/file",
    "data/self/self/file",
    "data/file/../file",  # which the kernel would not even open
    "data/...",
    "data/a b",
    "data/100%",
    "data/ünïcode",
]
OUTSIDE = [
    "other/secret",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "data/../other/secret",
    "data/deep/../../other/secret",
    "data/new/../../other/secret",
    "data-evil",
    "data-evil/file",
    "data.txt",
    "DATA/file",
    "data/out/secret",
    "data/leak",
    "data/dangling",
    "into/../other",
    "into/leak",
    "//etc/passwd",
]
DOUBTFUL = [
    "data/loop",
    "data/loop/file",
    "data/twisted/../secret",  # the kernel and a program that tidies paths end elsewhere
    "",
    "data/file\0",
    "data/fi\nle",
    " data/file",
    "data/file ",
    "~/data/file",
    "~root/x",
    "data\\..\\..\\other",
    "file:///etc/passwd",
    "file:data/file",
    "C:/data",
    "data/..%2f..%2fother",
    "data/%2e%2e/other",
    "data/%00",
    "data/․․/other",  # one dot leaders
    "data/‥/other",  # a two dot leader
    "data/…",  # an ellipsis
    "data/．．/other",  # full width dots
    "data／..／other",  # full width slashes
    "data/..＼other",
    "data/﹒﹒/other",
    "data/\u200b../other",
    "data/\ud800",
    "d/" * 3000,
    "d" * 300,
    None,
    5,
    True,
    ["data/file"],
    {"path": "data/file"},
    b"data/file",
]


def _id(value):
    return ascii(value)[:40]


@pytest.mark.parametrize("how", ["relative", "absolute"])
@pytest.mark.parametrize("path", INSIDE, ids=_id)
async def test_inside(disk, path, how):
    """What leads into the folder is inside, however it is spelled; relative folders count from the rules' file."""
    path = path if how == "relative" else f"{disk}/{path}"
    assert await both("path", "inside", "data", params={"path": path}, base=disk) == "yes"
    assert await both("path", "outside", "data", params={"path": path}, base=disk) == "no"
    assert await both("path", "inside", ["other", str(disk / "data")], params={"path": path}) == "yes"


@pytest.mark.parametrize("path", OUTSIDE, ids=_id)
async def test_outside(disk, path):
    """Traversal, links to the outside and folders of a similar name are outside."""
    assert await both("path", "inside", "data", params={"path": path}, base=disk) == "no"
    assert await both("path", "outside", "data", params={"path": path}, base=disk) == "yes"


@pytest.mark.parametrize("path", DOUBTFUL, ids=_id)
async def test_what_nobody_can_tell(disk, path):
    """A path that programs read differently is inside and outside for those who deny, and neither for those who allow."""
    assert await both("path", "inside", "data", params={"path": path}, base=disk) == "doubt"
    assert await both("path", "outside", "data", params={"path": path}, base=disk) == "doubt"


async def test_the_folder_itself_is_resolved(disk):
    """A folder that is named by a link is the folder that it leads to, at the time of the call."""
    assert await both("path", "inside", "into", params={"path": "data/file"}, base=disk) == "yes"
    (disk / "into").unlink()
    (disk / "into").symlink_to(disk / "other")
    assert await both("path", "inside", "into", params={"path": "data/file"}, base=disk) == "no"


async def test_a_relative_path_counts_from_the_working_folder(disk, monkeypatch):
    """As it does when the tool opens it; the folder of the rules is not the folder of the process."""
    monkeypatch.chdir(disk / "other")
    assert await both("path", "inside", "data", params={"path": "data/file"}, base=disk) == "no"
    assert await both("path", "inside", "data", params={"path": "../data/file"}, base=disk) == "yes"


async def test_every_path_has_to_be_inside(disk):
    """Among several, one outside is enough to deny and too much to allow."""
    assert await both("paths[*]", "inside", "data", params={"paths": ["data/file", "other"]}, base=disk) == "doubt"
    assert await both("paths[*]", "outside", "data", params={"paths": ["data/file", "other"]}, base=disk) == "doubt"
    assert await both("paths[*]", "inside", "data", params={"paths": ["data/file", "data"]}, base=disk) == "yes"


def test_another_name_of_the_same_folder(disk, monkeypatch):
    """A folder that can be reached by a path with other parts (no regard to case, two mounts) is not taken for outside."""
    real = os.stat

    def blind(path, *rest, **options):
        return real(str(path).replace("DATA", "data"), *rest, **options)

    monkeypatch.setattr(os, "stat", blind)
    assert inside("DATA/file", [disk / "data"]) == "it leads there by another name"
    assert inside("data-evil", [disk / "data"]) is False


@pytest.mark.skipif(os.geteuid() == 0, reason="root sees everything")
def test_what_cannot_be_seen_is_not_checked(disk):
    """A folder that this process must not look into could hold a link to anywhere."""
    (disk / "data/deep").chmod(0)
    try:
        assert isinstance(inside("data/deep/link/file", [disk / "data"]), str)
    finally:
        (disk / "data/deep").chmod(0o700)
