"""The fault-injection run: see ``chaos.run``, and docs/chaos.md for the faults and for what must hold."""
