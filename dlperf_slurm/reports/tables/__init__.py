"""Outcomes -> the tables of a report, one module per kind of table."""
