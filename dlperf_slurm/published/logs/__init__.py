"""Log formats of third-party benchmark scripts, each named as in `--format`.

A format is a TOML table, or a module where patterns are not enough. Modules run on Python 3.7 with
the standard library only, because a job may parse its own log with the framework's Python.
"""
