"""Tasks that run on Spark's executors: Arrow batches in, requests to the service, Arrow batches out.

Imports `tableside_client` and `partitioning`. It does not import PySpark, which makes Python workers start faster.
"""
