"""THE OTHER RUNTIME: the same pure core inside a Temporal workflow, with the tools as activities.

Nothing here imports Temporal before an engine's address asks for it (extra ``temporal``).
"""
