"""TOML files -> validated values, each with its line and the layer that it came from."""
