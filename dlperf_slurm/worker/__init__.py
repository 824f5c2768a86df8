"""The part of the package that runs in jobs, in the framework's own Python (3.7 and newer)."""
