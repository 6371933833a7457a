"""Benchmarks: kernels, the engine offline, servers over HTTP, start-up. The command line is `octavo
bench`."""
