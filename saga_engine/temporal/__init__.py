"""THE TEMPORAL RUNTIME: the same pure core inside a Temporal workflow, with the tools as activities.

This package imports Temporal only when a runtime's address needs it (extra ``temporal``).
"""
