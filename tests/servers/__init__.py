"""Real store servers for tests and benchmarks: installed if missing, on loopback, stopped at the end."""
