"""How many figures each rank has -> whether they make an array with a row for each rank."""

from typing import Sequence

# counts and displacements of MPI before its version 4 are C's int
MOST_FIGURES = 2**31 - 1


def check_sizes(sizes: Sequence[int]) -> None:
    """Raises ValueError where ranks have different numbers of figures, or too many in all.

    All ranks know all sizes, so that it is raised on each of them, before any sends its figures.
    """
    for rank, size in enumerate(sizes):
        if size != sizes[0]:
            raise ValueError(f"rank {rank} has {size} figures, rank 0 has {sizes[0]}")
    if sum(sizes) > MOST_FIGURES:
        raise ValueError(
            f"{len(sizes)} ranks with {sizes[0]} figures each are more than the {MOST_FIGURES} "
            "that are gathered: measure fewer steps"
        )
