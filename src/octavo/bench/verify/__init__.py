"""`octavo verify`: the exactness contract as a table."""
