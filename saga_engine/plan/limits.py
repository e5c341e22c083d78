"""Limits on the size of a plan. A plan comes from a language model or from the network, so every size has a limit."""

from __future__ import annotations

MAX_PLAN_BYTES = 8 * 1024 * 1024
#: Nested objects and lists, the plan itself included.
MAX_PLAN_DEPTH = 64
#: Values of any kind, at any depth. It limits the memory that a plan of the largest size can take.
MAX_PLAN_NODES = 300_000
MAX_STEPS = 10_000
#: Steps of a saga with all that is added to it while it runs, items of lists included; calls of a session.
MAX_GROWN = 20_000
#: Steps of a plan's ``finally``, and how long after they have begun one more call may start, in seconds.
MAX_FINALLY = 20
FINALLY_S = 3600.0
#: Calls of one saga in flight at a time.
MAX_PARALLEL = 64
#: So many owners in a row may end while a call, or its probe, is in flight; then an operator is asked. A call that
#: ends its process would else end every process that takes the saga over (tests/runtime/test_crash_loops.py). It is
#: the default of an operator's limit, which may be larger or smaller.
MAX_CRASHES = 3
MOST_CRASHES = 1_000
#: How long a call that a guard refuses may wait before its step fails, in seconds: the default of an operator's limit.
GUARD_WAIT_S = 900.0
#: Items of the list of one step with 'each', those included that its 'when' leaves out.
MAX_ITEMS = 10_000
#: Additions of steps to one saga while it runs.
MAX_ADDITIONS = 32
#: How many levels of child sagas a saga may have below it, and how many child sagas in all.
MAX_CHILD_DEPTH = 3
MAX_CHILDREN = 100
#: Fallbacks of one step.
MAX_FALLBACKS = 8
#: Calls of an undo after its first one.
MAX_UNDO_CALLS = 8
#: Problems that are listed; further ones are only counted.
MAX_PROBLEMS = 100
#: Problems that get a 'did you mean': the search for a near name is not free.
MAX_SUGGESTIONS = 10
#: Known names that are compared with a wrong one.
MAX_CANDIDATES = 500
#: Fields of an object of the format; an object with more is refused without a check of each field.
MAX_FIELDS = 100
MAX_GOAL_CHARS = 10_000
MAX_NAME_CHARS = 200
#: A step waits for so many events at most.
MAX_EVENTS = 20
#: How long the name of who is asked may be.
MAX_TO_CHARS = 100
#: What the author of a plan took for granted: sentences, and the length of each.
MAX_ASSUMPTIONS = 50
MAX_ASSUMPTION_CHARS = 500
#: Tags of a plan, and of one saga in addition; and the length of one.
MAX_TAGS = 16
MAX_TAG_CHARS = 64
#: Ten years.
MAX_SECONDS = 315_360_000.0
MAX_ATTEMPTS = 1000
MAX_CALLS = 1_000_000_000

#: The JSONPath after ``$output.step_<id>`` or ``$input``.
MAX_TAIL_CHARS = 256
#: Wildcards, slices, descendants and unions in one tail.
MAX_TAIL_CHOICES = 2
#: Bindings in all params of one plan.
MAX_BINDINGS = 100_000
#: Different tails in one plan that are not plain chains of fields and indexes.
MAX_COMPLEX_TAILS = 200
#: Values that one tail may visit in the search for its one match.
MAX_TAIL_VISITS = 200_000
#: Length of a text after its embedded bindings are filled.
MAX_TEXT_CHARS = 1024 * 1024
