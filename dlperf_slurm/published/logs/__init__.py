"""Log formats of other people's benchmark scripts: one module each, named as in `--format`.

They load on Python 3.7 with the standard library alone, as a job may read its own log in the
framework's Python.
"""
