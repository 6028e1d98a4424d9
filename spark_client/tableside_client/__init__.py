"""The HTTP client of the service, without Spark: connections, retries, authentication, TLS and batches in Arrow."""
