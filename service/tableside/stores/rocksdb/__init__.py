"""Tables in an embedded RocksDB database, which belongs to one process.

Concurrent writes share one sync of the write-ahead log. Each record has a header with its etag, its expiry and the
tokens of its writers.
"""

from .backend import RocksdbBackend, RocksdbSettings
from .backups import back_up, remove_older, restore

__all__ = ["RocksdbBackend", "RocksdbSettings", "back_up", "remove_older", "restore"]
