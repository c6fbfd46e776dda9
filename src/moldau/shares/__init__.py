"""Share groups (KIP-932) at the leader of a partition: who works on which records."""
