"""What is done on each node of a job before its ranks start: setup, checks and data copies."""
