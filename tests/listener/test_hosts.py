"""What is a host, and which origin is that of a host: read in one way at every door."""

from __future__ import annotations

import pytest

from saga_engine.listener import is_same_origin, split_host


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost", ("localhost", None)),
        ("LocalHost:80", ("localhost", 80)),
        ("[::1]:8800", ("[::1]", 8800)),
        ("my_host.example", ("my_host.example", None)),
        *[(text, None) for text in ("", "a:", "a:b", "a:0", "a:65536", "a:1:2", "[::1", "::1", "a/b", "a@b", "a b")],
    ],
)
def test_a_host_is_a_name_and_a_port(text: str, found: object) -> None:
    """Anything else is none, and no part of it counts."""
    assert split_host(text) == found


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://localhost", "localhost:80", True),
        ("https://a.example", "a.example", True),
        ("https://a.example:443", "a.example", True),
        ("http://localhost:8800", "localhost:8800", True),
        ("http://localhost:8801", "localhost:8800", False),
        ("http://localhost", "localhost:8800", False),
        ("https://a.example", "b.example", False),
        ("null", "null", False),
        ("ftp://localhost", "localhost", False),
    ],
)
def test_an_origin_has_the_port_of_its_scheme(origin: str, host: str, same: bool) -> None:
    """Whether it is written or not."""
    assert is_same_origin(origin, host) is same
