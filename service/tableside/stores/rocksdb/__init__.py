"""Tables in an embedded RocksDB, which one process owns.

Concurrent writes share one write to disk. Records have a header with their etag, expiry and tokens.
"""
