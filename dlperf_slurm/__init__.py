"""Deep-learning benchmarks on Slurm clusters: a TOML matrix goes in, tables to defend come out."""

__version__ = "0.1.0"
