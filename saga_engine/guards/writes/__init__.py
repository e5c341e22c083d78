"""WHO WROTE WHAT A RESOURCE NAMES: drift that no value shows, because it is the same again (A → B → A).

``marks`` says which calls are writes. The ticket that a call puts into the queue for its resource carries the mark, and
the store notes the write at its turn (``guard_queue.lua``): before the call, in the order of the calls, and without a
request more. ``rivals`` tells at an undo which sagas have written since the step's own write, from the journals of
those: what did not happen, and what has been taken back, is no write.
"""
