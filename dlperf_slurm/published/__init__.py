"""Logs, figures and table layouts that others published; only cli and interface import them.

Its logs are read in jobs too: this module is imported by Python 3.7.
"""
