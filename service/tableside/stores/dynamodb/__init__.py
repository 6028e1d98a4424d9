"""DynamoDB: a table's attributes are the value's members.

`backend` opens it and `tables` finds or makes a table; `store` says which call an operation goes into: `batches`, an
update by `expressions`, or a read and a conditional write by `exchange`; `scans` pages. `items` and `values` are the
attributes, `client` the one place that knows the driver.
"""
