"""A year of flights through the service: the demonstration that `scripts/demo` runs.

`flights` has the data, `service` starts and stops the service, `session` starts Spark, `job` is the Spark job that a
user would write, `check` compares what it left behind with Spark's own aggregation, `progress` tells the reader.
"""
