"""The one listener of every door: how connections come, what they may hold, and when they are cut off."""

from saga_engine.listener.bounds import Bounds
from saga_engine.listener.connection import connection_of
from saga_engine.listener.hosts import is_same_origin, split_host
from saga_engine.listener.server import Listener, address_of, bound, listen

__all__ = [
    "Bounds",
    "Listener",
    "address_of",
    "bound",
    "connection_of",
    "is_same_origin",
    "listen",
    "split_host",
]
