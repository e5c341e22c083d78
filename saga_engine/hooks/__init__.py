"""Escalation: hooks that deliver an open question, and its text.

``log``, ``webhook`` and ``chat`` deliver, ``messages`` builds the text, ``config`` makes hooks of ``[escalation]`` in
``saga.toml``. A hook stores nothing: the saga's journal records questions, notifications and answers.
"""
