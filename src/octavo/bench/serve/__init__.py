"""A workload against a server with OpenAI's API."""
