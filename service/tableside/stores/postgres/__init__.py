"""PostgreSQL store for tables of JSON documents and for tables of typed columns.

`backend` opens the database and `store` applies operations and follows changes of a table. `schema` reads table
definitions from the catalog, `columns` maps values to columns, and `statements` builds the SQL. `reads`, `writes` and
`scans` run it on the `connections` of a pool, whose messages `framing` checks.
"""
