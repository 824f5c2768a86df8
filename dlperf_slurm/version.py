"""The version of this package; setup.cfg reads it too."""

__version__ = "0.1.0"
