"""HTTP endpoints as tools, declared in ``saga.toml``.

``declaration`` reads the tables, ``endpoint`` makes requests from their ``templates``, ``network`` sends them,
``answers`` reads what comes back, ``exchange`` says what came of it.
"""

from saga_engine.sources.http.declaration import http_tools

__all__ = ["http_tools"]
