"""HTTP's texts to operations, and outcomes to HTTP's texts; the only place that knows status codes and media types.

JSON and Arrow differ only in how members are read and answers written: what members mean is in `members`, and what
an outcome is answered with is in `answers`, so that both give the same outcomes for the same operations.
"""
