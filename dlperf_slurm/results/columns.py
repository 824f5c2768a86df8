"""What a column of a frame is, and rows -> a frame of such columns. docs/columns.md lists them all.

The frames of cases, repeats, ranks, comparisons and histories are made alike: each declares its
columns, and where its rows have the values.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from dlperf_slurm.plain_text import defuse_cell
from dlperf_slurm.results.ratios import Ratio

if TYPE_CHECKING:
    from pandas import DataFrame

TEXT = "string"
COUNT = "Int64"
# NaN where there is none: matplotlib and NumPy take no NA
NUMBER = "float64"
FLAG = "boolean"
TIME = "datetime64[ns, UTC]"
# of the frame of steps, which has millions of rows and no gaps
REPEATED_TEXT = "category"
SHORT_COUNT = "int32"

# as files of a run have it, and a CSV
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

# a throughput is in images/s of one model and in sequences/s of another
THROUGHPUT = "`unit`"


class Column(NamedTuple):
    """A column of a frame; `kind` is its pandas dtype, `unit` is empty for texts and flags.

    `source` says where a row has the value: a path of attributes, "" for the column's own name, or
    a function of the row. A path that meets None on its way leads to None, which is missing.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    source: Union[str, Callable[[Any], object]] = ""

    def find(self, row: object) -> object:
        """The value that a row has in this column."""
        if callable(self.source):
            return self.source(row)
        return follow(row, self.source or self.name)


def follow(value: Any, path: str) -> Any:
    """What a path of attributes leads to; None where one on the way is."""
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


CASE_ID = Column("case_id", TEXT, "", "the case; it joins frames, and runs of one matrix")
MODEL = Column("model", TEXT, "", "model, by the name of its definition")
COMPUTED = Column(
    *("computed_samples_per_s", NUMBER, THROUGHPUT),
    "throughput without the time that ranks waited for data; missing of logs, and where only the "
    "host's waiting is known",
)
DATA_WAITING = Column(
    *("data_waiting_share", NUMBER, "share of 1"),
    "time waited for data over the window, of the rank that waited longest",
)


def declare_bounds(
    name: str,
    unit: str,
    meaning: str,
    find: Optional[Callable[[Any], Optional[Ratio]]] = None,
) -> list[Column]:
    """A number, and the two ends of its interval; rows have them as an attribute if not said."""
    find = find or attrgetter(name)
    return [
        Column(name, NUMBER, unit, meaning, lambda row: follow(find(row), "value")),
        Column(
            *(f"{name}_low", NUMBER, unit, f"lower end of the 95 % interval of `{name}`"),
            lambda row: follow(find(row), "interval.low"),
        ),
        Column(
            *(f"{name}_high", NUMBER, unit, f"upper end of the 95 % interval of `{name}`"),
            lambda row: follow(find(row), "interval.high"),
        ),
    ]


def describe_latency(name: str) -> str:
    """What one of LATENCY_NAMES is."""
    return "mean latency" if name == "avg" else f"{name[1:]} % latency"


def list_kinds(columns: Iterable[Column]) -> dict[str, str]:
    """The pandas dtype of each column, in their order."""
    return {column.name: column.kind for column in columns}


def make_frame(columns: Sequence[Column], rows: Iterable[object]) -> "DataFrame":
    """A frame [rows, columns] of the columns' types; what a row does not have is missing.

    The types do not depend on what was measured.
    """
    return make_frame_of_values(columns, [list_values(columns, row) for row in rows])


def list_values(columns: Sequence[Column], row: object) -> list[object]:
    """The value that a row has in each column."""
    return [column.find(row) for column in columns]


def make_frame_of_values(
    columns: Sequence[Column], values: Sequence[Sequence[object]]
) -> "DataFrame":
    """What `make_frame` makes of rows with these values.

    Each column is made by itself: to cast a frame of objects takes three times as long.
    """
    from pandas import DataFrame

    cells = zip(*values) if values else repeat(())
    return DataFrame({c.name: _make_array(c.kind, own) for c, own in zip(columns, cells)})


def _make_array(kind: str, cells: Sequence[object]) -> Any:
    """The values of a column, as pandas has those of its type."""
    from pandas import Series, array, to_datetime

    if kind != TIME:
        return array(cells, dtype=kind)
    texts = Series(cells, dtype=object)
    return to_datetime(texts, utc=True, format=TIME_FORMAT, errors="coerce").astype(TIME)


def list_records(frame: "DataFrame") -> list[dict[str, Any]]:
    """The rows of a typed frame, with None for what is missing."""
    values = frame.astype(object)
    records: list[dict[str, Any]] = values.where(frame.notna(), None).to_dict("records")
    return records


def serialize_csv(frame: "DataFrame") -> str:
    """RFC 4180; what is missing is an empty field, and times are texts as in the files of a run.

    No spreadsheet takes a text for a formula.
    """
    plain = frame.copy(deep=False)
    for name in frame.select_dtypes(("string", "category")):
        plain[name] = frame[name].astype("string").map(defuse_cell, na_action="ignore")
    text: str = plain.to_csv(index=False, lineterminator="\r\n", date_format=TIME_FORMAT)
    return text
