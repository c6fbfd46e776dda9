"""Share groups (KIP-932): the share coordinator, and share partitions at their leaders."""
