"""SOURCES OF TOOLS other than Python functions: HTTP endpoints declared in ``saga.toml``."""
