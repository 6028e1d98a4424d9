"""Writes as a whole: a batch job or a streaming query, its token, its summary, and its failed rows."""
