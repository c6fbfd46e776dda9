"""What the cluster is, who controls it, and how its topics and configs change.

The order in which a broker that starts uses this room: `cluster_identity.ensure_layout`, then
`MetadataPublisher.start` (the image is there, logs can be loaded); what became of its replicas is
written (`rules/departure`, `StateWriter`) before `BrokerRegistration.register`; `Controller.start`,
and `Controller.run` from then on. `ClusterAdmin`, `LeadershipAdmin` and `ProducerIdBlocks` serve
the handlers. Closing the coordination session takes the broker out of the cluster again.
"""
