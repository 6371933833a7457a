"""A light HTTP client: it shares the machine with the server it measures."""
