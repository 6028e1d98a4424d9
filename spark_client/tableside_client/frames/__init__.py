"""Plans of reads and writes of frames: pyarrow Tables, and DataFrames of pandas and Polars."""
