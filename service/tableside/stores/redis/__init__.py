"""Redis: a single server or a cluster.

`backend` opens it, and `store` says how each operation goes. `reads`, `writes`, `exchange` and `scan` do them by the
commands of `script`, over the connections of `node` and `cluster`; `keys`, `slots` and `records` say what is where.
"""
