"""Runs of one or more results folders -> what each case measured over time."""
