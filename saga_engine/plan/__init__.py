"""The plan, its checks and its bindings. Pure: no clock, no randomness, no network.

This package imports nothing, so that an importer of :mod:`saga_engine.plan.tool_spec` alone does not pay for pydantic.
"""
