"""One command per claim."""
