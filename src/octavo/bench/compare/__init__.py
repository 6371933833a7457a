"""Contiguous against paged: `octavo bench compare`."""
