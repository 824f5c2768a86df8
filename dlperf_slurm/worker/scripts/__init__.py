"""Scripts that ship with the package and train through somebody else's own trainer.

A matrix starts one as a source, from the run's frozen code:
`python -m dlperf_slurm.worker.scripts.PACKAGE.MODEL`.
"""
