"""What NVIDIA and DLPerf printed that does not follow from their other figures."""

from collections import Counter
from pathlib import Path

import pytest
from published_documents import FOLDER

from dlperf_slurm.published.audit import Audit, audit_paths
from dlperf_slurm.published.audit.rounding import (
    ABOVE_DEVICES,
    CONTRADICTION,
    DUPLICATE,
    OUT_OF_ORDER,
    STALE,
    SWAPPED,
    TRUNCATED,
    WRONG,
)

MXNET_README = FOLDER / "nvidia_mxnet_resnet50.txt"
DLPERF_README = FOLDER / "dlperf.txt"
TENSORPACK_README = FOLDER / "tensorpack.txt"

SPEEDUP, PRECISION, SAMPLES = "published_speedup", "published_precision_speedup", "samples_per_s"

# source: line of the publisher's README, column, printed, kind
CERTAIN = {
    "nvidia_mxnet_resnet50_training": [
        (652, PRECISION, "2.18", WRONG),
        (653, SPEEDUP, "3.97", WRONG),
        (653, PRECISION, "3.24", WRONG),
        (668, SPEEDUP, "2.01", ABOVE_DEVICES),
        (670, PRECISION, "3.56", TRUNCATED),
        (684, SPEEDUP, "1.96", TRUNCATED),
        (684, SPEEDUP, "1.96", TRUNCATED),
        (685, SPEEDUP, "3.83", TRUNCATED),
        (685, SPEEDUP, "3.92", WRONG),
        (685, PRECISION, "3.52", TRUNCATED),
        (686, SPEEDUP, "7.61", TRUNCATED),
        (686, PRECISION, "3.52", TRUNCATED),
        (687, PRECISION, "3.38", TRUNCATED),
    ],
    "nvidia_mxnet_resnet50_inference": [
        (726, SAMPLES, "286", TRUNCATED),
        (727, SAMPLES, "519", TRUNCATED),
        (732, SAMPLES, "3234", TRUNCATED),
        (733, SAMPLES, "3362", TRUNCATED),
        (734, SAMPLES, "3178", TRUNCATED),
        (734, "latency_p90_ms", "65.56", OUT_OF_ORDER),
        (735, "latency_p90_ms", "92.26", OUT_OF_ORDER),
        (748, PRECISION, "1.11", CONTRADICTION),
        (749, SAMPLES, "277", TRUNCATED),
        (749, PRECISION, "1.48", CONTRADICTION),
        (750, SAMPLES, "374", TRUNCATED),
        (750, PRECISION, "1.47", CONTRADICTION),
        (751, PRECISION, "2.21", CONTRADICTION),
        (753, SAMPLES, "1473", TRUNCATED),
        (754, SAMPLES, "1561", TRUNCATED),
        (755, SAMPLES, "1555", TRUNCATED),
        (757, SAMPLES, "1559", TRUNCATED),
    ],
    "nvidia_pytorch_resnet50": [
        (599, SPEEDUP, "6.72", TRUNCATED),
        (607, SPEEDUP, "7.76", TRUNCATED),
        (615, SPEEDUP, "7.75", TRUNCATED),
        (615, SPEEDUP, "6.96", TRUNCATED),
    ],
    "nvidia_pytorch_resnext101": [(581, SPEEDUP, "7.65", WRONG), (581, SPEEDUP, "6.91", TRUNCATED)],
    "nvidia_pytorch_se_resnext101": [(591, SPEEDUP, "7.58", WRONG)],
    "nvidia_pytorch_bert": [(823, SPEEDUP, "2.02", ABOVE_DEVICES)],
    "nvidia_paddle_resnet50": [(907, SPEEDUP, "8.24", ABOVE_DEVICES)],
    "nvidia_tensorflow2_bert": [
        (line, SPEEDUP, printed, SWAPPED)
        for line, columns in {
            785: ("3.71", "3.29"),
            786: ("7.41", "6.53"),
            800: ("3.86", "3.51"),
            801: ("7.73", "7.02"),
            814: ("7.77", "7.81"),
        }.items()
        for printed in columns
    ],
    "dlperf": [
        (280, SPEEDUP, "7.55", TRUNCATED),
        (301, SPEEDUP, "10.2", TRUNCATED),
        (318, SPEEDUP, "4.04", ABOVE_DEVICES),
        (321, SPEEDUP, "4.06", ABOVE_DEVICES),
        (334, SPEEDUP, "4.22", ABOVE_DEVICES),
        (359, SPEEDUP, "27.33", WRONG),
        (369, SPEEDUP, "7.79", TRUNCATED),
        (63, SPEEDUP, "29.75", WRONG),
    ],
}

CLEAN = (
    *("nvidia_paddle_bert", "nvidia_tensorflow1_resnet50", "nvidia_tensorflow1_resnext101"),
    *("nvidia_tensorflow1_se_resnext101", "dlperf_repeats", "dlperf_report_v1", "tensorpack"),
)


def audit(*names: str) -> Audit:
    return audit_paths([Path(name) for name in names])


def audit_document(path: Path) -> Audit:
    return audit_paths([path])


def describe(found: Audit) -> Counter:
    return Counter(
        (int(f.where.rpartition(":")[2]), f.cell.partition(":")[0], f.published, f.kind)
        for f in found.findings
    )


@pytest.mark.parametrize("name", [*CERTAIN, *CLEAN])
def test_findings_are_these_and_no_others(name):
    assert describe(audit(name)) == Counter(CERTAIN.get(name, ()))


def test_fine_tuning_in_tensorflow1_has_its_two_columns_swapped():
    swapped = [f for f in audit("nvidia_tensorflow1_bert").findings if f.kind == SWAPPED]
    lines = {int(f.where.rpartition(":")[2]) for f in swapped}
    assert lines == {814, 815, 846, 847, 896, 897, 898}
    assert {(f.published, f.follows) for f in swapped} >= {("3.62", "3.2710"), ("3.27", "3.6196")}


def test_pretraining_in_tensorflow1_is_faster_than_its_devices():
    found = audit("nvidia_tensorflow1_bert").findings
    assert {"21.57", "10.95", "5.47"} <= {f.published for f in found if f.kind == ABOVE_DEVICES}
    assert {f.kind for f in found} == {ABOVE_DEVICES, SWAPPED}


def test_summary_of_dlperf_has_an_older_figure_of_mxnet():
    found = audit("dlperf_summary", "dlperf_report_v1", "dlperf", "dlperf_repeats").findings
    summary = [f for f in found if f.file == "dlperf_summary"]
    assert {(f.published, f.follows, f.kind) for f in summary} == {
        ("28.67", "28.6404", STALE),
        ("11233.92", "11331.93", DUPLICATE),
        ("10.2", "10.277", TRUNCATED),
    }
    assert [f.file for f in found if f.kind == DUPLICATE] == ["dlperf_summary"]
    (stale,) = (f for f in summary if f.kind == STALE)
    assert "391.77" in stale.reason


def test_figures_of_dlperf_that_are_not_the_median_of_their_repeats():
    found = audit("dlperf", "dlperf_repeats").findings
    assert {(f.published, f.follows) for f in found if "median of the 6 repeats" in f.reason} == {
        ("112.76", "112.5600"),
        ("430.43", "436.6950"),
        ("855.45", "867.7200"),
        ("1576.88", "1376.4450"),
        ("3089.74", "2478.5900"),
    }


def test_document_of_nvidia_gives_the_same_as_its_data():
    from_text = audit_document(MXNET_README)
    from_data = audit("nvidia_mxnet_resnet50_training", "nvidia_mxnet_resnet50_inference")
    assert Counter((f.published, f.follows, f.kind) for f in from_text.findings) == Counter(
        (f.published, f.follows, f.kind) for f in from_data.findings
    )


def test_times_to_train_are_recomputed_and_accuracies_named():
    found = audit_document(MXNET_README)
    # 34 of throughputs, and five of times to train
    assert found.checked.derived_cells == 41
    assert len([gap.what for gap in found.not_audited if "Accuracy" in gap.what]) == 4


def test_summary_of_dlperf_as_text_cannot_be_recomputed_and_says_so():
    found = audit_document(DLPERF_README)
    assert found.findings == ()
    assert [gap.line for gap in found.not_audited] == [65, 52]
    assert "15 cells of FP32 speedup bsz=128, AMP speedup bsz=256" in found.not_audited[1].what


def test_tables_without_derived_cells_are_named():
    gaps = audit_document(TENSORPACK_README).not_audited
    assert [(gap.line, gap.what) for gap in gaps] == [
        (54, "table at line 54"),
        (63, "table at line 63"),
    ]
