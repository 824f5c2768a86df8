"""Runs of one or more results folders -> the history of each case."""
