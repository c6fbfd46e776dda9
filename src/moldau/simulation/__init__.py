"""A simulated cluster: brokers on virtual time, with faults, workloads and checks from a seed.

`cluster.SimulatedCluster` runs one seed, and `python -m moldau.simulation.campaign` many. The fakes
that it is built on (clock, files, network) are for users' tests too: `moldau.testing` exports them.
"""
