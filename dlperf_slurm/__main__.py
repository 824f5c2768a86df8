"""python -m dlperf_slurm, and the console script `dlperf-slurm`."""

import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

_IS_SAFE = sys.flags.isolated or getattr(sys.flags, "safe_path", False)

if __name__ == "__main__" and not _IS_SAFE and sys.path[0] != _HOME:
    # -m looks into the working directory first, where a file may be named like a module of Python
    del sys.path[0]

from dlperf_slurm.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
