"""Numbers -> numbers."""
