"""HTTP endpoints as tools, declared in ``saga.toml``.

``declaration`` reads the tables, ``endpoint`` makes requests from their ``templates``, ``transport`` sends them,
``answers`` parses the responses, ``call`` decides the outcome.
"""

from saga_engine.sources.http.declaration import http_tools

__all__ = ["http_tools"]
