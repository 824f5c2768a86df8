"""The container of a start that ended well -> the files that were folded into it."""

import zipfile

from dlperf_slurm.contract.details import DETAILS_FILE


def unfold(folder):
    """Put the files beside the container, as they were; nothing is done where there is none."""
    if (folder / DETAILS_FILE).exists():
        with zipfile.ZipFile(str(folder / DETAILS_FILE)) as details:
            details.extractall(str(folder))
