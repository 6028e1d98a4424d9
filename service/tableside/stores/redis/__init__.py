"""Records in Redis: a single server or a cluster.

`backend` opens the connections, and `store` decides how to run each operation. `reads`, `writes`, `compare_and_set` and
`scans` run operations with the commands and scripts of `scripts`. `connection`, `driver`, `cluster` and `topology`
send commands to the nodes. `keys` and `records` define the names of Redis keys and the format of records.
"""
