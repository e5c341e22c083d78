"""The systems: each a module with ``play(run)``, written as its documentation says."""
