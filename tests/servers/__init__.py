"""Real store servers for tests and benchmarks: installed where missing, on loopback, stopped at the end."""
