"""Talking to models: prompts, one adapter for all providers, reading and mending of answers, the repair loop.

A model's answer is hostile input. What a plan may use is decided by the checks, never by what the model was told.
Nothing is imported here: the packages behind a model take seconds to load, and only who asks one pays for it.
"""
