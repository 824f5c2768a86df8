"""Log formats of third-party benchmark scripts, each named as in `--format`.

A format is a TOML table, or a module where patterns are not enough. In a module, `start_run` parses
the lines of one run; SIGNATURE recognizes such a log, START the first line of a run, and RULES
compute what publishers printed. `_make_windows` returns the measured interval of a rank (a
`Window`: steps, and their seconds or rate) from its timed lines (`Mark`). Modules run on Python 3.7
with the standard library only, because a job may parse its own log with the framework's Python.
"""
