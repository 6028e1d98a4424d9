"""The kinds of store: memory, RocksDB, Redis, PostgreSQL, DynamoDB, partitioned, and those of installed packages.

Each kind is a module or package of its own, imported when a configuration names it, because its driver may not be
installed. Imports `core`.
"""

from .registry import backend_type, kinds

__all__ = ["backend_type", "kinds"]
