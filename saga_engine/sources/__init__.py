"""WHERE TOOLS COME FROM other than Python functions: HTTP endpoints declared in ``saga.toml``."""
