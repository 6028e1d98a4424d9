"""PostgreSQL store for tables of JSON documents and for tables of typed columns.

`backend` opens the database and `store` chooses the statements for each operation. `schema` reads table definitions
from the catalog, `value_columns` and `column_types` map values to columns, and `statements` builds the SQL. `writes`
and `scans` run the SQL on connections of `pool`. `deadline_retry` repeats and splits that work, and `framing` checks
the server's messages. `rows` and `json_text` convert the results to records.
"""
