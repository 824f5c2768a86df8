"""A matrix file (TOML) -> its cases."""
