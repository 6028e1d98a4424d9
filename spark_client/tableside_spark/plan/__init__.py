"""DataFrame transformations on the driver: rows become checked operations, grouped and folded by key.

Imports the packages before it: `tableside_client`, `partitioning` and `executor`.
"""
