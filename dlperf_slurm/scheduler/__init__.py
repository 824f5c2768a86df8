"""A run directory -> array jobs and their states, on Slurm or on this machine."""
