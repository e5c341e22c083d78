"""What both runtimes share: calls and questions built from a state, results, ids, observers, requests to a planner."""
