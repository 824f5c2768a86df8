"""The version of this package, for whoever needs no more of it. setup.cfg reads it too."""

__version__ = "0.1.0"
