"""The kinds of store: memory, RocksDB, Redis, PostgreSQL, DynamoDB, partitioned, and those of plug-ins.

Each kind is a separate module or package. It is imported only if the configuration uses it, because its driver may not
be installed. Imports `core`.
"""

from .registry import backend_type, kinds

__all__ = ["backend_type", "kinds"]
