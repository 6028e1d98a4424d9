"""Benchmarks against what a user would take instead. Compare within one run only: `python -m bench` prints ratios."""
