"""The engine: one thread that owns all state, and the queues around it."""
