"""How near a case came to what its devices and its network could reach."""

import dataclasses

import pytest
from builders import make_manifest, make_outcomes, make_planned_case
from outcome_builders import change_outcomes
from report_values import summarize, write_rows

from dlperf_slurm.contract.peaks import OF_FRAMEWORK, OF_MPI, AllReduce, DevicePeak, Peaks
from dlperf_slurm.jobs.attempts import Sidecars
from dlperf_slurm.reports.tables import FootnoteMarks
from dlperf_slurm.reports.tables import tabulate as make_tables
from dlperf_slurm.reports.tables.machines import ALL_REDUCES
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.device_peaks import find_published_tflops

PEAK = DevicePeak("node1", flops_per_s=4e12, product_size=4096, copied_bytes_per_s=2e11)


def make_case(
    topology="1n1g",
    devices=(PEAK,),
    sums=(),
    rate=100.0,
    device="cpu",
    name="cpu",
    precision="fp32",
) -> CaseOutcomes:
    """Make a case of three repeats, each with these peaks and sums beside its record.

    `rate` is the throughput of all, or a list with that of each repeat.
    """

    def list_changes(outcome):
        record = outcome.record
        ranks = tuple(dataclasses.replace(rank, device_name=name) for rank in record.ranks)
        own = dataclasses.replace(record.case, device=device)
        peaks = Peaks("run", outcome.case_id, outcome.repeat, 1, "fp32", devices, tuple(sums))
        return {"sidecars": Sidecars(peaks=peaks), "record": {"case": own, "ranks": ranks}}

    rates = rate if isinstance(rate, list) else [rate] * 3
    outcomes = make_outcomes(make_planned_case(topology, precision=precision), rates)
    return change_outcomes(outcomes, list_changes)


def tabulate(*cases):
    return analyze(cases).case_columns


def test_share_of_the_measured_peak_is_the_work_over_it():
    row = tabulate(make_case()).iloc[0]
    assert row.measured_peak_tflops == 4.0
    assert row.measured_peak_share == pytest.approx(row.tflops_per_device / 4.0)
    assert row.copied_gb_per_s == 200.0
    assert "of the measured peak" not in row.notes


def test_rates_of_work_and_shares_of_peaks_have_intervals_and_as_few_digits():
    outcomes = make_case(rate=[60e3, 61e3, 62e3, 63e3, 64e3, 65e3])
    row = tabulate(outcomes).iloc[0]
    for name in ("tflops_per_device", "measured_peak_share"):
        for end in ("low", "high"):
            share = row[f"interval_{end}"] / row.samples_per_s
            assert row[f"{name}_{end}"] == pytest.approx(row[name] * share)
    summary = summarize(make_manifest(), [outcomes])
    table = summary.tables[0]
    (cells,) = write_rows(table)
    shown = dict(zip(table.header, cells))
    # two digits of half the interval's width, and never an exponent
    assert shown["TFLOP/s per device"] == "1533 (1472 to 1595)"
    assert shown["share of measured peak"] == "38300 % (36800 to 39900)"
    doubts = [note for note in summary.footnotes if note.startswith("doubtful, 38")]
    assert f"[{summary.footnotes.index(*doubts) + 1}]" in shown["images/s"]


@pytest.mark.parametrize(
    ("changes", "tflops", "note"),
    [
        ({"flops_per_s": 2e12}, 3.0, ""),
        # which is below what the case computed
        ({"flops_per_s": -3.999e12}, 5e-4, "of the measured peak"),
        ({"flops_per_s": 0.0, "problem": "not measured with spin"}, None, "measured with spin"),
    ],
)
def test_peak_of_several_nodes_is_their_mean(changes, tflops, note):
    second = dataclasses.replace(PEAK, host="node2", **changes)
    (row,) = list_records(tabulate(make_case(devices=(PEAK, second))))
    assert row["measured_peak_tflops"] == pytest.approx(tflops)
    assert note in row["notes"]
    assert (row["measured_peak_share"] is None) == (tflops is None)


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("NVIDIA A100-SXM4-40GB", "fp32", 19.5),
        ("NVIDIA A100-SXM4-40GB", "amp-bf16", 312),
        ("NVIDIA H200 NVL", "bf16", 835.5),
        # what no vendor publishes
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16", None),
    ],
)
def test_published_peak_is_of_the_device_and_the_precision(name, precision, tflops):
    (row,) = list_records(tabulate(make_case(device="cuda", name=name, precision=precision)))
    assert row["published_peak_tflops"] == tflops
    share = row["tflops_per_device"] / tflops if tflops else None
    assert row["published_peak_share"] == (share and pytest.approx(share))


@pytest.mark.parametrize(
    ("name", "fp32"),
    [
        ("NVIDIA A10", 31.2),
        ("NVIDIA L40S", 91.6),
        ("NVIDIA L4", 30.3),
        ("NVIDIA H20", 44),
        ("NVIDIA GB200", 80),
        ("NVIDIA B200", 75),
    ],
)
def test_names_that_are_alike_are_told_apart(name, fp32):
    assert find_published_tflops(name)["fp32"] == fp32


# a step of the case on one device takes 8 samples / 100 samples/s = 80 ms
@pytest.mark.parametrize(
    ("sum_seconds", "reachable", "unoverlapped"),
    [(0.02, 1.0, 0.8), (0.08 * 2 / 3, 1.0, 0.6), (0.08 * 2 / 3 + 0.02, 0.8, 0.08 / 0.15333333)],
)
def test_efficiency_that_communication_allows(sum_seconds, reachable, unoverlapped):
    # that of another size is not of the gradients
    sums = (AllReduce(OF_MPI, 10**8, sum_seconds), AllReduce(OF_MPI, 10**6, 1.0))
    rows = tabulate(make_case(), make_case("1n2g", sums=sums, rate=150.0)).set_index("topology")
    assert rows.reachable_efficiency["1n2g"] == pytest.approx(reachable)
    assert rows.unoverlapped_efficiency["1n2g"] == pytest.approx(unoverlapped)
    assert rows.all_reduce_gb_per_s["1n2g"] == pytest.approx(0.1 / sum_seconds)
    assert rows.reachable_efficiency["1n1g"] == 1


def test_bus_bandwidth_is_what_each_rank_sends():
    sums = (AllReduce(OF_MPI, 10**9, 1.0), AllReduce(OF_MPI, 10**6, 0.001))
    results = analyze([make_case("1n4g", sums=sums)])
    assert results.frames.sums.gb_per_s.tolist() == pytest.approx([1.5] * 6)
    (table,) = make_tables(ALL_REDUCES, results, FootnoteMarks(()))
    assert [[cell.text for cell in row][3:] for row in table.rows] == [
        ["", "0.9537", "1.00", "1.5", "3"],
        ["resnet50", "953.7", "1000.00", "1.5", "3"],
    ]


def test_sum_through_host_memory_says_nothing_of_gpus():
    one = make_case(device="cuda")
    mpi = make_case("1n2g", sums=(AllReduce(OF_MPI, 1, 0.02),), device="cuda")
    own = make_case("1n2g", sums=(AllReduce(OF_FRAMEWORK, 1, 0.02),), device="cuda")
    assert tabulate(one, mpi).isna().reachable_efficiency[1]
    assert not tabulate(one, own).isna().reachable_efficiency[1]


def test_without_one_device_or_several_there_is_nothing_to_reach():
    sums = (AllReduce(OF_MPI, 1, 0.02),)
    rows = tabulate(make_case("1n2g", sums=sums), make_case("1n4g", sums=sums))
    assert rows.reachable_efficiency.isna().all()
    assert tabulate(make_case()).isna().reachable_efficiency[0]
