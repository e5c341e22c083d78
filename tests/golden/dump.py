"""A store as lines of text: what its keys hold, apart from any server's own format, and back into any server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

import redis


def _text(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode()}


def _bytes(data: str | dict[str, str]) -> bytes:
    return data.encode() if isinstance(data, str) else base64.b64decode(data["b64"])


def dumped(raw: redis.Redis) -> Iterator[str]:
    """A line for each key: its name, kind, content and the moment when it expires (-1: never)."""
    for key in sorted(raw.scan_iter()):
        kind = raw.type(key).decode()
        found: Any
        match kind:
            case "string":
                found = _text(raw.get(key))
            case "hash":
                found = [[_text(name), _text(value)] for name, value in sorted(raw.hgetall(key).items())]
            case "list":
                found = [_text(each) for each in raw.lrange(key, 0, -1)]
            case "set":
                found = [_text(each) for each in sorted(raw.smembers(key))]
            case "zset":
                found = [[_text(name), repr(score)] for name, score in raw.zrange(key, 0, -1, withscores=True)]
            case _:
                raise AssertionError(f"a kind of key that is not known here: {kind}")
        line = {"key": _text(key), "kind": kind, "expires_ms": raw.pexpiretime(key), "value": found}
        yield json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def load(raw: redis.Redis, lines: Iterable[str]) -> int:
    """Write the keys into an empty server. One that has expired since then is gone at once, as on the old server."""
    count = 0
    pipe = raw.pipeline(transaction=False)  # a server that writes each command through would take a minute
    for line in lines:
        body = json.loads(line)
        key, value = _bytes(body["key"]), body["value"]
        match body["kind"]:
            case "string":
                pipe.set(key, _bytes(value))
            case "hash":
                pipe.hset(key, mapping={_bytes(name): _bytes(each) for name, each in value})
            case "list":
                pipe.rpush(key, *(_bytes(each) for each in value))
            case "set":
                pipe.sadd(key, *(_bytes(each) for each in value))
            case "zset":
                pipe.zadd(key, {_bytes(name): score for name, score in value})
        if body["expires_ms"] >= 0:
            pipe.pexpireat(key, body["expires_ms"])
        count += 1
    pipe.execute()
    return count
