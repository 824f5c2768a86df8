"""Log formats of third-party benchmark scripts, each named as in `--format`.

A format is a TOML table, or a module where patterns are not enough: `start_run` parses the lines of
one run, SIGNATURE recognizes such a log, START the first line of a run, and RULES compute what
publishers printed. Modules run on Python 3.7 with the standard library only, because a job may
parse its own log with the framework's Python.
"""
