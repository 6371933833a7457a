"""Workloads: prompts, output lengths and arrival times."""
