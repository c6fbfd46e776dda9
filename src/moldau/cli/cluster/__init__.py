"""`moldau cluster ...`: ZooKeeper and several brokers on this machine."""
