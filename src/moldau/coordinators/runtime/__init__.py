"""The coordinator runtime: what the coordinators of groups, transactions and share state share."""
