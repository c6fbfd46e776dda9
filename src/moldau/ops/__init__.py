"""What people are shown about a cluster: views of it, checks, explanations, placement.

The command line and the console show the same figures because they take them from here.
Everything is read through the public client and, where there is one, the metrics port: so it works
with Apache Kafka, too.
"""
