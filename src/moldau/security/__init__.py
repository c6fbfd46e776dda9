"""Who is at the other end of a connection: certificates, credentials, the exchanges of SASL."""
