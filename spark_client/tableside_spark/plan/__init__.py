"""DataFrame transformations on the driver: rows become checked operations, grouped and folded by key."""
