"""Samples -> medians, intervals, tests, and what makes a series of times doubtful."""
