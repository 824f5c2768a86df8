"""Checks of a plan against its site, and of frameworks against each other."""
