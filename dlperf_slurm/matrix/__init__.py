"""matrix.toml -> cases."""
