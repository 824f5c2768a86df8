"""Data that the login side and the worker exchange: case.json in, record.json out.

Loads on Python 3.7 with only the standard library, as the worker runs in each framework's Python.
"""
