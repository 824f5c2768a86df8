"""python -m dlperf_slurm, and the console script `dlperf-slurm`."""

import sys

from dlperf_slurm.cli import main

if __name__ == "__main__":
    sys.exit(main())
