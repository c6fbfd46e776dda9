"""`moldau zookeeper ...`: real ZooKeeper servers on this machine."""
