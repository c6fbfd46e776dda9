"""Queues: a share consumer, its share sessions and the jobs it gives. `rules` decide."""
