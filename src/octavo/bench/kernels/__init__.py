"""The CPU kernels, each beside the machine's own peaks."""
