"""What should happen: the plan, its checks and its bindings. Pure: no clock, no dice, no network.

Nothing is imported here, so that who needs only :mod:`saga_engine.plan.tool_spec` does not pay for pydantic.
"""
