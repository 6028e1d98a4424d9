"""PostgreSQL: tables of documents, and tables of columns.

`backend` opens it, and `store` says which statement an operation goes into. `shape` finds out what a table is, `forms`
and `types` how it keeps values, `sql` the statements; `writes` and `scan` carry them out in the `attempts` of a
connection of the `pool`, whose stream `framing` looks after; `records` and `text` make records of what comes back.
"""
