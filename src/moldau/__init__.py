"""Moldau: Apache Kafka's commit log and wire protocol, in Python."""

__version__ = "0.1.0"
