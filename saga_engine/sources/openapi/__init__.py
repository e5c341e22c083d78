"""Drafts of HTTP tools from an OpenAPI document (3.0 to 3.2).

``saga tools import openapi`` prints them as ``[http.NAME]`` tables for an operator to complete. Nothing of a document
is read when tools run.
"""

from saga_engine.sources.openapi.draft import Draft, Drafted, LeftOut, draft_tables

__all__ = ["Draft", "Drafted", "LeftOut", "draft_tables"]
