"""Scripts of this package that train with the trainer of an external library.

A matrix can name one as its script, which runs from the run's frozen code:
`python -m dlperf_slurm.worker.scripts.PACKAGE.MODEL`.
"""
