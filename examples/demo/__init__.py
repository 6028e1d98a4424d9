"""A year of flights through the service: the demonstration that `scripts/demo` runs.

`flights` prepares the data, `service` starts and stops the service, and `session` starts Spark. `job` is the Spark job
that a user would write, `check` compares its results with Spark's own aggregation, and `progress` prints the steps.
"""
