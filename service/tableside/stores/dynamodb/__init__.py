"""DynamoDB store: the members of a value are attributes of an item.

`backend` opens the store, and finds or creates tables. `store` chooses the call for each operation: those of `calls`,
or compare-and-set of `updates`. `scans` reads pages. `items` converts records, and `client` is
the only module that uses the driver.
"""
