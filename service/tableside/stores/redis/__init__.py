"""Records in Redis: a single server, the primary of Sentinels, or a cluster.

`settings` reads the configuration, `backend` opens tables, and `store` decides how to apply each operation, which
`records`, `writes`, `edits` and `scans` do with their scripts. `scripts` has the Lua that scripts share. `servers` and
`connection` send commands. `keys` and `records` define the names of Redis keys and the format of records.
"""
