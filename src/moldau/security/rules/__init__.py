"""Decisions about security: values in, values out."""
