"""What the cluster is, who controls it, and how its topics and configs change.

A broker that starts uses this package in this order: `broker_registration.ensure_znodes`, then
`MetadataPublisher.start` (the image is there, logs can be loaded); what became of its replicas is
written (`rules.broker_shutdown`, `StateWriter`) before `BrokerRegistration.register`; then
`Controller.start` and `Controller.run`. `ClusterAdmin` and `ProducerIdBlocks`
serve the handlers. Closing the coordination session takes the broker out of the cluster again.
"""
