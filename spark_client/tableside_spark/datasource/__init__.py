"""The data source `tableside`: scans, batch writes and streaming writes."""
