"""Partitions of a key or a row: the interface for the caller's own function, Kafka's default, and the Arrow task.

Imports `tableside_client`.
"""
