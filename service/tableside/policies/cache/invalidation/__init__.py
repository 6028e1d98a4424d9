"""The channel over which replicas tell each other's caches what was written: Redis publish/subscribe.

Imported only where a table uses it, because it needs the Redis driver.
"""
