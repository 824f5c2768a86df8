"""Cases x site -> a run directory: plan, job scripts, journal, and the validation of records."""
