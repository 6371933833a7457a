"""The engine in this process, without a server."""
