"""Samples -> medians, confidence intervals, significance tests, and anomalies of step times."""
