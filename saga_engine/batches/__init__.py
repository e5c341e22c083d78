"""Many sagas at once: what an action on them would do, and its carrying out."""
