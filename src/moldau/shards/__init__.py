"""What coordinators share: a topic in which they keep their state, one log for each shard of it,
and answers that wait until what they rest on is committed."""
