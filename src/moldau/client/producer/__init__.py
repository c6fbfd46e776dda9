"""The producer: `send`, record accumulator, sender, transactions. `rules` decide."""
