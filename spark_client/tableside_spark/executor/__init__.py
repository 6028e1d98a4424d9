"""Tasks that run on Spark's executors: Arrow batches in, requests to the service, Arrow batches out."""
