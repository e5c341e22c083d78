"""Many sagas in a bad world: see ``chaos.run``, and docs/chaos.md for what is broken and what must hold."""
