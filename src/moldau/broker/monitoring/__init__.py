"""What people and Prometheus see of a broker: metrics, health, history, clients' own figures."""
