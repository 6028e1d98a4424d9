"""Reads and writes of frames: pyarrow Tables, and DataFrames of pandas and Polars. They need pyarrow.

`Table` and `AsyncTable` have them as methods, and run the plans of this package.
"""
