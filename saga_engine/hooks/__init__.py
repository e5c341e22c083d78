"""Asking people: hooks that deliver an open question, and what they say.

``log``, ``webhook`` and ``chat`` deliver, ``wording`` finds the words, ``building`` makes hooks of ``[escalation]`` in
``saga.toml``. A hook keeps nothing: what was asked, told and answered stands in the saga's journal.
"""
