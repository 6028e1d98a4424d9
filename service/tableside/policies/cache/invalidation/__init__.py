"""The Redis publish/subscribe channel where replicas announce their writes to each other's caches.

It is imported only for tables that use it, because it needs the Redis driver.
"""
