"""Benchmarks of the service against alternatives without it. Compare only results of one run: the output is ratios."""
