"""WHAT IS DONE WITH JOURNALS AND PLANS: simulation, traces, replay and forks, over the pure core and as pure as it."""
