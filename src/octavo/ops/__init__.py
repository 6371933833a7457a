"""Op sets: the arithmetic of one device each."""
