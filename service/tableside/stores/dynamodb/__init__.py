"""DynamoDB store: the members of a value are attributes of an item.

`backend` opens the store and `table_schema` finds or creates tables. `store` chooses the call for each operation:
`batches`, an UpdateItem built by `expressions`, or a read and a conditional write by `compare_and_set`. `scans` reads
pages. `items` and `attribute_values` convert records, and `client` is the only module that uses the driver.
"""
