"""Model families, written once against ops, and where their weights come from."""
