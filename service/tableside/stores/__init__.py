"""The kinds of store: memory, RocksDB, Redis, PostgreSQL, DynamoDB, partitioned, and those of plug-ins.

Each kind is a separate module or package. One with a driver is imported only if the configuration uses it, because its
driver may not be installed. Imports `core`.
"""

from .partitioned import PartitionedBackend, PartitionedSettings, PartitionedStore
from .registry import backend_type, kinds

__all__ = ["PartitionedBackend", "PartitionedSettings", "PartitionedStore", "backend_type", "kinds"]
