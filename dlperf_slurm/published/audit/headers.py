"""Headers of a table -> quantity, precision, variant and unit of each column."""

import dataclasses
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Optional

from dlperf_slurm.published.audit.rounding import (
    EFFICIENCY,
    FULL_PRECISIONS,
    LATENCY_AVG,
    PRECISION_SPEEDUP,
    REDUCED,
    SAMPLES_PER_S,
    SPEEDUP,
    TIME_SPEEDUP,
    TRAINING_TIME,
)

DEVICES = "devices"
DEVICES_PER_NODE = "devices_per_node"
NODES = "nodes"
TOPOLOGY = "topology"
BATCH_SIZE = "batch_size"
# figures of a server under load: throughput is not batch size over latency
CONCURRENCY = "concurrency"
# the header is only a precision; the cells show the quantity
BARE_PRECISION = "bare_precision"
# columns with the document that a figure was copied from, and its line there
PATH = "path"
LINE = "line"
WORDS = ("framework", "source", "precision", "compiler", "model", "hardware", PATH, LINE)

_SPEEDUP = r"speed-? ?up"
# a bare number only if it is a usual percentile: TP-16 and batch 32 are none
_PERCENTILE = (
    r"(?:\bp?[0-9]{2,3}(?:\.[0-9]+)? ?%|\bp[0-9]{2,3}(?:\.[0-9]+)?|\b[0-9]{2}th\b"
    r"|(?<![\w.-])(?:50|75|90|95|98|99(?:\.[0-9]+)?|100)(?![\w.]))"
)
_STATISTIC = rf"(?:avg\b\.?|average|mean\b|median|{_PERCENTILE})"
_MILLISECONDS = r"(?:[(\[]ms[)\]]|\bms$)"

# quantities by their headers; the first matching pattern counts
_PATTERNS = (
    (SPEEDUP, r"\bscaling\b(?! efficiency)"),
    (EFFICIENCY, r"\befficiency\b"),
    (TIME_SPEEDUP, rf"(time to train|train(ing)? time|training).*{_SPEEDUP}"),
    (TRAINING_TIME, r"time to train|train(ing)? time"),
    # ignored: deviation, minimum and maximum of latencies
    ("", rf"(latency|{_MILLISECONDS}).*\b(std|deviation|min|max)\b|\b(std|stddev) .*latency"),
    ("latency_{}_speedup", rf"^speedup_latency_({_STATISTIC})$"),
    ("latency_{}", rf"^latency_({_STATISTIC})_ms$"),
    ("latency_{}_speedup", rf"({_STATISTIC}) latency.*{_SPEEDUP}"),
    ("latency_{}_speedup", rf"latency.*?({_STATISTIC}) ?{_SPEEDUP}"),
    ("latency_{}", rf"({_STATISTIC}).* latency"),
    ("latency_{}", rf"latency.*?({_STATISTIC})"),
    ("latency_{}", rf"({_STATISTIC}) ?{_MILLISECONDS}"),
    (LATENCY_AVG, r"^latency ?([(\[]m?s[)\]])?$|(^|_)step_time$"),
    (PRECISION_SPEEDUP, rf"throughput.*{_SPEEDUP}|{_SPEEDUP} .* / |precision {_SPEEDUP}"),
    (PRECISION_SPEEDUP, rf"{_SPEEDUP}.*\b(mixed|fp16|bf16|amp|fp32|tf32)\b(?!.*bsz)"),
    (PRECISION_SPEEDUP, rf"\b(fp16|bf16|amp) ?/ ?(fp32|tf32) {_SPEEDUP}"),
    (SPEEDUP, rf"{_SPEEDUP}|加速比"),
    (SAMPLES_PER_S, r"(^|_)(samples|images|img|sequences|tokens)_per_s(ec)?$"),
    (SAMPLES_PER_S, r"through?put|throuthput|[a-z] ?/ ?s(ec(ond)?)?\b|per second|吞吐"),
    # NVIDIA's headers for throughputs of speech synthesis
    (SAMPLES_PER_S, r"number of (mels|samples) used"),
    (CONCURRENCY, r"concurrency|concurrent"),
    (DEVICES_PER_NODE, r"(gpu|device).*(/ ?node|per.node)"),
    (NODES, r"^(#|num.|number of )?nodes?( num|_num)?$|^节点数$"),
    (BATCH_SIZE, r"^(batch.{0,2}size|bsz|bs$|batch$)|^(train|infer)_batch_size$"),
    (DEVICES, r"^(#|num.|number of )? ?(gpu|device)s?( num|_num|数)?$"),
    (TOPOLOGY, r"^topology$"),
    *((word, f"^{word}$") for word in WORDS),
)

# precisions by their names in headers, cells and titles; the first match counts
_REDUCED = (
    ("amp-bf16", r"amp-bf16"),
    ("bf16", r"\bbf(?:loat)?16\b"),
    (REDUCED, r"amp-fp16|\bm(?:ixed|id)[- ]precision\b|\bmixed\b|\bamp\b|\bfp16\b"),
    ("fp8", r"\bfp8\b"),
    ("int8", r"\bint8\b"),
)
_FULL = tuple((name, rf"\b{name}\b") for name in FULL_PRECISIONS)
_VARIANT = re.compile(r"(?:precision|amp|[bt]?f(?:p|loat)?(?:16|32)) ?(?:\+|w/|with) ?([a-z]+)\b")
_SIZE = re.compile(r"\b(?:bsz=|bs ?=? ?)([0-9]+)", re.IGNORECASE)
_XLA = re.compile(r"\b(?:w/|with )?xla\b")

_MILLISECOND = Fraction(1)
_SECOND = Fraction(1000)


@dataclass(frozen=True)
class PrintedColumn:
    """A column of a table, as its header describes it; a part that the header does not name is "".

    `quantity` is what its cells are: "samples_per_s", "latency_p99", "devices", "" if unknown.
    `variant` is an addition to the precision, such as "xla". `reference` is the full precision that
    a speedup is over. A number times `scale` is in samples/s or ms; None without a unit in the
    header.
    """

    header: str
    quantity: str
    precision: str = ""
    batch_size: str = ""
    variant: str = ""
    reference: str = ""
    scale: Optional[Fraction] = None


def read_headers(headers: Sequence[str]) -> list[PrintedColumn]:
    """Parse the headers of a table into columns: quantity, precision, batch size, variant.

    A speedup in a table of latencies is over another precision; a plain "speedup" there belongs to
    the column before it, as in our reports.
    """
    columns: list[PrintedColumn] = []
    cleaned = [clean_header(header) for header in headers]
    quantities = [_find_quantity(header) for header in cleaned]
    has_latencies = any(quantity.startswith("latency") for quantity in quantities)
    for header, found in zip(cleaned, quantities):
        quantity = found
        # "weak scaling" is a SPEEDUP too, but never one relative to another precision
        if has_latencies and quantity == SPEEDUP and "scaling" not in header.lower() and columns:
            before = columns[-1].quantity
            is_bare = re.fullmatch(_SPEEDUP, header.lower()) is not None
            is_of_latency = is_bare and before.startswith("latency")
            quantity = f"{before}_speedup" if is_of_latency else PRECISION_SPEEDUP
        columns.append(
            PrintedColumn(
                header=header,
                quantity=quantity,
                precision=find_precision(header),
                batch_size="".join(_SIZE.findall(header)[:1]),
                variant=_find_variant(header.lower()),
                reference=next((p for p in list_precisions(header) if p in FULL_PRECISIONS), ""),
                scale=_find_scale(header.lower(), quantity),
            )
        )
    return _name_alike(_read_times(columns))


def _name_alike(columns: Sequence[PrintedColumn]) -> list[PrintedColumn]:
    """Return the columns without variants and batch sizes that distinguish no throughputs.

    The variant is removed if all throughputs share it; the batch size if each precision has only
    one, and at least one speedup column names none. If speedups name another full precision than
    the throughputs ("fp32" for "tf32"), that of the throughputs is used.
    """
    samples = [column for column in columns if column.quantity == SAMPLES_PER_S]
    derived = [column for column in columns if column.quantity in (SPEEDUP, PRECISION_SPEEDUP)]
    full = {column.precision for column in samples} & set(FULL_PRECISIONS)
    others = {column.precision for column in derived} & set(FULL_PRECISIONS)
    renamed = dict.fromkeys(others, *full) if len(full) == 1 and not others & full else {}
    has_one_variant = len({column.variant for column in samples}) == 1
    sizes = {(column.precision, column.batch_size) for column in samples}
    # if all speedup columns name a batch size, no column loses its batch size
    is_sized = not all(column.batch_size for column in derived)
    has_one_size = is_sized and len(sizes) == len({column.precision for column in samples})
    return [
        dataclasses.replace(
            column,
            precision=renamed.get(column.precision, column.precision),
            variant="" if has_one_variant else column.variant,
            batch_size="" if has_one_size else column.batch_size,
        )
        for column in columns
    ]


def _read_times(columns: Sequence[PrintedColumn]) -> list[PrintedColumn]:
    """Return the columns, with precision speedups as ratios of training times where they are that.

    They are in tables with training times and no throughputs; other tables stay unchanged.
    """
    quantities = {column.quantity for column in columns}
    if TRAINING_TIME not in quantities or SAMPLES_PER_S in quantities:
        return list(columns)
    return [
        dataclasses.replace(column, quantity=TIME_SPEEDUP)
        if column.quantity == PRECISION_SPEEDUP
        else column
        for column in columns
    ]


def clean_header(header: str) -> str:
    """Return the header on one line, without bold, code, tags, links and escapes."""
    text = re.sub(r"<[^>]*>", " ", html.unescape(header))
    text = re.sub(r"\[([^][]*)\]\([^)]*\)", r"\1", text)
    text = text.replace("*", "").replace("`", "").replace("\\", "")
    return " ".join(text.split()).rstrip("↑↓ ")


def _find_quantity(header: str) -> str:
    """Return the quantity that a header names, such as "latency_p99"; "" if it names none."""
    lower = header.lower()
    for quantity, pattern in _PATTERNS:
        match = re.search(pattern, lower)
        if match is not None:
            return quantity.format(_name_latency(match[1])) if "{}" in quantity else quantity
    is_bare = any(re.fullmatch(pattern, lower) for _, pattern in (*_REDUCED, *_FULL))
    return BARE_PRECISION if is_bare else ""


def _name_latency(text: str) -> str:
    """Return the name of a latency's statistic: "90%" -> "p90", "median" -> "p50", else "avg"."""
    percent = re.search(r"[0-9.]+", text)
    if text.startswith("median"):
        return "p50"
    return f"p{percent[0]}" if percent and percent[0] != "." else "avg"


def find_precision(text: str) -> str:
    """Return the precision that a header or title names, or ""; of two, the reduced one.

    "mixed precision speedup over FP32" gives "amp-fp16": a speedup belongs to the reduced
    precision.
    """
    return next(iter(list_precisions(text)), "")


def list_precisions(text: str) -> list[str]:
    """List the names of all precisions in a text, such as "amp-fp16", reduced ones first."""
    lower = text.lower()
    return [name for name, pattern in (*_REDUCED, *_FULL) if re.search(pattern, lower)]


def drop_precisions(text: str) -> str:
    """Return a text's letters and digits without names of precisions, to compare table titles."""
    lower = text.lower()
    for _, pattern in (*_REDUCED, *_FULL):
        lower = re.sub(pattern, " ", lower)
    return "".join(re.findall(r"\w", lower))


def _find_variant(header: str) -> str:
    """Return the variant after a precision in a lower-case header: "xla" of "fp16 + xla", or ""."""
    match = _VARIANT.search(header)
    if match is not None and match[1] not in ("bsz", "batch"):
        return match[1]
    return "xla" if _XLA.search(header) else ""


def _find_scale(header: str, quantity: str) -> Optional[Fraction]:
    """Return the factor from a header's unit to its quantity's base unit, or None without a unit.

    The base units are samples/s and ms: a latency "in (s)" has the factor 1000.
    """
    if quantity == SAMPLES_PER_S:
        return _SECOND if re.search(r"/ ?ms\b", header) else None
    if not quantity.startswith("latency") or quantity.endswith("speedup"):
        return None
    if re.search(r"\bms\b|_ms$|millisec", header):
        return _MILLISECOND
    if re.search(r"[(\[]s(ec(onds?)?)?[)\]]", header):
        return _SECOND
    return None
