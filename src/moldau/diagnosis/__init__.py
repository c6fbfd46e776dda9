"""What is wrong with a cluster, and why things are as they are: `moldau doctor` and `explain`.

Everything comes through the public client and, where it is given, the metrics port: so it works
with Apache Kafka, too.
"""
