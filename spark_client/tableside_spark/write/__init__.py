"""Writes as a whole: a batch job or a streaming query, its token, its summary, and what happens to failures.

Imports the packages before it: `tableside_client`, `partitioning`, `executor` and `plan`.
"""
