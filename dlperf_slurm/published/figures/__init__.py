"""Published figures, one CSV file per document -> a frame of figures with their sources."""

from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.config.suggestions import describe_unknown
from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.errors import InputError
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

# publishers do not print the maximum latency
LATENCIES = LATENCY_NAMES[:-1]

TEXTS = ("source", "framework", "model", "precision", "compiler", "data_location",
    "variable_update", "hardware", "software", "note", "table", "where")  # fmt: skip
COUNTS = ("nodes", "devices_per_node", "batch_size_per_device", "repeat")
NUMBERS = (
    *("samples_per_s", "published_speedup", "published_precision_speedup"),
    *(f"latency_{name}_{unit}" for unit in ("ms", "speedup") for name in LATENCIES),
)
FOLDER = Path(__file__).parent


def list_sources() -> list[str]:
    """Return the sorted names of all published sources."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def find_source_file(name: str) -> Path:
    """Return the CSV file of a source; raises InputError, which lists the known names."""
    known = list_sources()
    if name not in known:
        raise InputError(describe_unknown(name, known, "a published source"))
    return FOLDER / f"{name}.csv"


def read_source(name: str) -> "DataFrame":
    """Read the figures of a published source, such as "dlperf", in its order: [figures, columns].

    Each figure is one published throughput, with the published speedups and latencies that belong
    to it. `framework`, `model`, `precision` and `compiler` have this project's names if there is
    one; `software` has the publisher's. What was not printed is "", 0 or NaN. `table` distinguishes
    the tables of a document, `where` is a figure's line in the publisher's repository.

    Raises InputError, which lists the known names, if `name` is not one.
    """
    import pandas

    columns = [*TEXTS, *COUNTS, *NUMBERS]
    texts = pandas.read_csv(find_source_file(name), dtype=str, keep_default_na=False)
    texts = texts.reindex(columns=columns, fill_value="")
    counts = texts[[*COUNTS]].replace("", "0").astype(int)
    figures = texts[[*TEXTS]].join(counts).join(texts[[*NUMBERS]].replace("", "nan").astype(float))
    return figures.assign(
        world_size=figures.nodes * figures.devices_per_node,
        mode=figures.latency_avg_ms.isna().map({True: TRAIN, False: INFER}),
    )
