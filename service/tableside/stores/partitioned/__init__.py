"""Tables partitioned over several named stores: shards, regions or copies.

Each operation goes to one partition, several, all or none. The stores may be of any kind.
"""

from .backend import PartitionedBackend, PartitionedSettings
from .store import PartitionedStore

__all__ = ["PartitionedBackend", "PartitionedSettings", "PartitionedStore"]
