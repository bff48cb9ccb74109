"""Benchmarks: `python -m benchmarks.throughput`, `python -m benchmarks.engine_overhead`, or `make bench`."""
