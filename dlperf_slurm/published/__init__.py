"""Logs, figures and table layouts that others published; only cli and interface import them."""
