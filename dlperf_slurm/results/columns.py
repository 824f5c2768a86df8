"""Columns of data frames: each is declared once, with its meaning and its formula.

Frames, CSV, Parquet, docs/columns.md and table headers are made from these declarations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from dlperf_slurm.plain_text import defuse_cell
from dlperf_slurm.results.number_formats import RATIO, NumberFormat

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TEXT = "string"
COUNT = "Int64"
# missing is NaN: matplotlib and NumPy do not accept NA
NUMBER = "float64"
FLAG = "boolean"
TIME = "datetime64[ns, UTC]"
# lists of samples, or of texts
LISTS = "object"
# compact types for the data frame of steps, which has millions of rows and no missing values
REPEATED_TEXT = "category"
SHORT_COUNT = "int32"

# the time format of a run's files and of CSV
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

# the unit of a throughput is in the column `unit`: images/s, sequences/s, ...
THROUGHPUT = "`unit`"


@dataclass(frozen=True)
class Column:
    """The declaration of a data frame column: pandas type `dtype`, `unit` ("" for texts and flags).

    `meaning` describes it in docs/columns.md. `compute` returns the value of one row from a
    repeat; in the frame of cases, the values of all rows from the columns declared before
    (`results.cases`); in comparisons and histories, the values from another frame
    (`compute_columns`). In the latter two, `bounds` names two more columns with the ends of the 95
    % interval, and `compute` returns a frame [value, low, high, ...] with the columns named in
    `extremes` (range of the samples) and `hidden` (used by tables only) after them. `header`,
    `form` and `missing` say how tables print the column. Only `published` columns are written to
    files and documented.
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
        """The names of all columns of the data frame that this declaration makes."""
        return (self.name, *self.bounds, *self.extremes, *self.hidden)

    @property
    def published_names(self) -> tuple[str, ...]:
        """The names of the columns that are written to files."""
        return (self.name, *self.bounds) if self.published else ()

    @property
    def meanings(self) -> tuple[str, ...]:
        """The meaning of each of `published_names`."""
        ends = (f"{end} end of the 95 % interval of `{self.name}`" for end in ("lower", "upper"))
        return (self.meaning, *(text for text, _ in zip(ends, self.bounds)))


def copy_column(name: str, dtype: str, unit: str, meaning: str, **printed: Any) -> Column:
    """Declare a column that is copied from the frame from which the others are computed.

    `printed` has `header`, `form`, `missing` of Column.
    """
    return Column(name, dtype, unit, meaning, itemgetter(name), **printed)


def hide_column(name: str, dtype: str, compute: Callable[..., Any], **printed: Any) -> Column:
    """Declare a column that other columns or tables use, and that is not written to files."""
    return Column(name, dtype, "", "", compute, published=False, **printed)


def with_bounds(name: str) -> tuple[str, str]:
    """Return the names of the columns of an interval's ends: "speedup_low", "speedup_high"."""
    return f"{name}_low", f"{name}_high"


def make_frame_of_values(
    dtypes: Mapping[str, str], values: Sequence[Sequence[object]]
) -> "DataFrame":
    """Build a data frame from rows with one value per column; None is missing.

    `dtypes` are the pandas types by column name. Columns are built one by one: casting a frame of
    objects takes three times as long.
    """
    from pandas import DataFrame, Series, array

    cells = zip(*values) if values else repeat(())
    return DataFrame(
        {
            name: cast(Series(own, dtype=object), dtype)
            if dtype in (TIME, LISTS)
            else array(own, dtype=dtype)
            for (name, dtype), own in zip(dtypes.items(), cells)
        }
    )


def compute_columns(columns: Sequence[Column], frame: "DataFrame") -> "DataFrame":
    """Return the columns to write to files, computed from `frame`, in declared order and types."""
    from pandas import DataFrame

    found = {}
    for column in columns:
        values = column.compute(frame)
        for name in column.published_names:
            found[name] = cast(values[name] if column.bounds else values, column.dtype)
    return DataFrame(found)


def select_published(columns: Sequence[Column], frame: "DataFrame") -> "DataFrame":
    """Return a new data frame of the columns to write to files, in declared order and types."""
    from pandas import DataFrame

    found = {
        name: cast(frame[name], column.dtype)
        for column in columns
        for name in column.published_names
    }
    return DataFrame(found).reset_index(drop=True)


def cast(values: "Series", dtype: str) -> "Series":
    """Convert a column to a pandas type; times are text in TIME_FORMAT, missing if invalid."""
    from pandas import Timestamp, to_datetime

    # compare names: pandas considers its own `str` type equal to "string"
    if str(values.dtype) == dtype:
        return values
    if dtype != TIME:
        return values.astype(dtype)
    times = to_datetime(values, utc=True, format=TIME_FORMAT, errors="coerce")
    # nanoseconds reach from 1677 to 2262; other times are missing, as invalid ones are
    limits = (Timestamp.min.tz_localize("UTC"), Timestamp.max.tz_localize("UTC"))
    return times.where(times.between(*limits)).astype(TIME)


def list_values(column: "Series") -> list[Any]:
    """Convert a column to a list of Python values; missing values become None."""
    found = zip(column.tolist(), column.isna().tolist())
    return [None if is_missing else value for value, is_missing in found]


def list_records(frame: "DataFrame") -> list[dict[str, Any]]:
    """Convert the rows of a typed data frame to dicts; missing values become None."""
    return [dict(zip(frame, row)) for row in zip(*(list_values(frame[name]) for name in frame))]


def serialize_csv(frame: "DataFrame") -> str:
    """Serialize a typed data frame as CSV (RFC 4180, but with LF line ends).

    Missing values are empty, times are in TIME_FORMAT. Texts are escaped so that no spreadsheet
    evaluates them as formulas.
    """
    plain = frame.copy(deep=False)
    for name in frame.select_dtypes(("string", "category")):
        plain[name] = frame[name].astype("string").map(defuse_cell, na_action="ignore")
    text: str = plain.to_csv(index=False, date_format=TIME_FORMAT)
    return text
