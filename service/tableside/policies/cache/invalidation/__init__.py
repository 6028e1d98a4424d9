"""The Redis publish/subscribe channel where replicas announce their writes to each other's caches.

Imported only where a table uses it, because it needs the Redis driver.
"""
