"""TOOLS OVER JOURNALS AND PLANS: simulation, traces, replay and forks, over the pure core and as pure as it."""
