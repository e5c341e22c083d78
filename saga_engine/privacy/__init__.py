"""PRIVACY: payloads are sealed on their way to the store, with a key for each saga that a keyring's key wraps.

No other room knows of it: ``SealedStore`` is a ``Store``. ``cryptography`` is imported with the first key.
"""
