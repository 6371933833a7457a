"""The heart: KV memory as virtual memory. Start reading at manager.py."""
