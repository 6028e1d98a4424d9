"""Tableside for Spark: join frames with tables, and write frames to them."""
