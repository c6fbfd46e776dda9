"""Pipelines declared in a file: from topics, through transforms, to topics and lakes.

`file` reads and checks a declaration, `run` runs it on Spark, `status` tells how far it is. What is
decided without Spark, files or clocks is in `rules`. Nothing here imports pyspark before it is
needed: checking a file, or asking for its status, needs no Java.
"""
