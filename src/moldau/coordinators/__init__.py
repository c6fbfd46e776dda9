"""Coordinators of groups, transactions and share state, and the runtime that they share."""
