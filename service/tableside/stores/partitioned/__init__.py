"""Tables over several named stores: shards, regions or copies. An operation goes to one partition, some, all or none.

`backend` composes the stores and opens a table in each, `store` sends operations where they go, `whole` makes one
outcome of several, and `scans` reads one partition after the other. Knows nothing of which kinds of store those are.
"""
