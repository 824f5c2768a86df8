"""Columns of the frames: each is declared once, with what it means and how it is computed.

Frames, CSV, Parquet, docs/columns.md and the headers of tables are read from these declarations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from dlperf_slurm.plain_text import defuse_cell
from dlperf_slurm.results.number_formats import RATIO, NumberFormat

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXT = "string"
COUNT = "Int64"
# NaN where there is none: matplotlib and NumPy take no NA
NUMBER = "float64"
FLAG = "boolean"
TIME = "datetime64[ns, UTC]"
# lists of samples, or of texts
LISTS = "object"
# of the frame of steps, which has millions of rows and no gaps
REPEATED_TEXT = "category"
SHORT_COUNT = "int32"

# as files of a run have it, and a CSV
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

# a throughput is in images/s of one model and in sequences/s of another
THROUGHPUT = "`unit`"


@dataclass(frozen=True)
class Column:
    """A column of a frame; `dtype` is its pandas type, `unit` is empty for texts and flags.

    `compute` returns the value of one row from the object that the row is made of; for the frame of
    cases it returns all values from the columns before (see `results.cases`), for comparisons and
    histories from the frame that is made into theirs (`compute_columns`). There a column with
    `bounds` owns two more, the ends of its 95 % interval, and `compute` returns a frame of
    [value, low, high]. `extremes` (the range of the samples) and `hidden` columns come behind them,
    for tables. `header`, `form` and `missing` say how tables print it. Only `published` columns are
    in files and documented.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    compute: Callable[..., Any]
    bounds: tuple[str, ...] = ()
    extremes: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    header: str = ""
    form: NumberFormat = RATIO
    missing: str = ""
    published: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the frame that it owns."""
        return (self.name, *self.bounds, *self.extremes, *self.hidden)

    @property
    def published_names(self) -> tuple[str, ...]:
        """The columns that it has in files."""
        return (self.name, *self.bounds) if self.published else ()

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each of `published_names` is."""
        ends = (f"{end} end of the 95 % interval of `{self.name}`" for end in ("lower", "upper"))
        return (self.meaning, *(text for text, _ in zip(ends, self.bounds)))


def with_bounds(name: str) -> tuple[str, str]:
    """Name the ends of a column's interval."""
    return f"{name}_low", f"{name}_high"


def get(path: str) -> Callable[[Any], Any]:
    """Return a function that follows a path of attributes; None where one on the way is None."""

    def follow(value: Any) -> Any:
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        return value

    return follow


def make_frame(columns: Sequence[Column], rows: Iterable[object]) -> "DataFrame":
    """Build a typed frame [rows, columns]; the types do not depend on what was measured."""
    values = [[column.compute(row) for column in columns] for row in rows]
    return make_frame_of_values({column.name: column.dtype for column in columns}, values)


def make_frame_of_values(
    dtypes: Mapping[str, str], values: Sequence[Sequence[object]]
) -> "DataFrame":
    """Build a typed frame of rows that have a value for each column; None is missing.

    Columns are built one by one: casting a frame of objects takes three times as long.
    """
    from pandas import DataFrame

    cells = zip(*values) if values else repeat(())
    return DataFrame({name: make_array(dtypes[name], own) for name, own in zip(dtypes, cells)})


def make_array(dtype: str, cells: Sequence[object]) -> Any:
    """Build the values of a typed column; None is missing."""
    from pandas import Series, array

    if dtype not in (TIME, LISTS):
        return array(cells, dtype=dtype)
    return cast(Series(cells, dtype=object), dtype)


def compute_columns(columns: Sequence[Column], frame: "DataFrame") -> "DataFrame":
    """Compute columns from those of another frame, in their declared order and types."""
    from pandas import DataFrame

    found = {}
    for column in columns:
        values = column.compute(frame)
        for name in column.published_names:
            found[name] = cast(values[name] if column.bounds else values, column.dtype)
    return DataFrame(found)


def take(name: str) -> "Callable[[DataFrame], Series]":
    """Return a function that takes a column of a frame."""
    return lambda frame: frame[name]


def select_published(columns: Sequence[Column], frame: "DataFrame") -> "DataFrame":
    """Return the columns that files have, in their declared order and types: a new frame."""
    from pandas import DataFrame

    found = {
        name: cast(frame[name], column.dtype)
        for column in columns
        for name in column.published_names
    }
    return DataFrame(found).reset_index(drop=True)


def cast(values: "Series", dtype: str) -> "Series":
    """Return the values in a declared type; times are texts at first."""
    from pandas import to_datetime

    # by name: pandas takes its own `str` for equal to "string"
    if str(values.dtype) == dtype:
        return values
    if dtype != TIME:
        return values.astype(dtype)
    return to_datetime(values, utc=True, format=TIME_FORMAT, errors="coerce").astype(TIME)


def list_values(column: "Series") -> list[Any]:
    """List the values of a column as Python has them; None is missing."""
    found = zip(column.tolist(), column.isna().tolist())
    return [None if is_missing else value for value, is_missing in found]


def list_records(frame: "DataFrame") -> list[dict[str, Any]]:
    """List the rows of a typed frame, with None for what is missing."""
    values = frame.astype(object)
    records: list[dict[str, Any]] = values.where(frame.notna(), None).to_dict("records")
    return records


def serialize_csv(frame: "DataFrame") -> str:
    """Write a typed frame as CSV (RFC 4180, but lines end with LF).

    What is missing is an empty field, and times are texts as in the files of a run. No spreadsheet
    takes a text for a formula.
    """
    plain = frame.copy(deep=False)
    for name in frame.select_dtypes(("string", "category")):
        plain[name] = frame[name].astype("string").map(defuse_cell, na_action="ignore")
    text: str = plain.to_csv(index=False, date_format=TIME_FORMAT)
    return text
