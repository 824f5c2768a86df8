"""Log formats of other people's benchmark scripts, each named as in `--format`.

One is a table in TOML, or a module where patterns do not reach. Modules load on Python 3.7 with the
standard library alone, as a job may read its own log in the framework's Python.
"""
