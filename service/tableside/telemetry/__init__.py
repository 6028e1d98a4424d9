"""What is told about requests to those who run the service: its log, a line per request, and traces.

Nothing here shows a key, a value or a secret: not even at the level of debugging.
"""
