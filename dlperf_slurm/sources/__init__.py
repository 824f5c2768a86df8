"""Scripts that ship with the package and train through somebody else's own trainer.

A matrix starts one as a source: `python -m dlperf_slurm.sources.NAME`, from the run's frozen code.
"""
