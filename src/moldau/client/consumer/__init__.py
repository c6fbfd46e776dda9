"""The consumer: subscription, group membership, fetches, offsets. `rules` decide."""
