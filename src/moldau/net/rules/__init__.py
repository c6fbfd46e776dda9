"""Decisions about connections: values in, values out."""
