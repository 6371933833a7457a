"""The OpenAI-compatible HTTP server: `create_app` makes it, `serve` runs it."""
