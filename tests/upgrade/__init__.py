"""Tries a rolling upgrade, and the way back, between a commit and the working tree."""
