"""Cases x site -> a run directory: what will run, where, and the scripts that run it."""
