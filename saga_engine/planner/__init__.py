"""REQUESTS TO MODELS: prompts, one adapter for all providers, parsing and repair of answers, the repair loop.

A model's answer is hostile input. The checks decide what a plan may use, never the instructions to the model. This
package imports nothing: the packages behind a model take seconds to load, and only a request pays for them.
"""
