"""What the login side and the worker share: case.json in, record.json out.

Loads on Python 3.7 with nothing but the standard library, because the worker runs inside each
framework's own Python.
"""
