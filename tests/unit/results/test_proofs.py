"""Proofs of `parity` beside a run -> the proof of each case, and a note on those without one."""

import dataclasses

import pytest
from builders import make_outcomes, make_planned_case
from support.cases import vary

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.parity import PROOFS_FILE, Proof, Proofs
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.proofs import UNPROVEN, load_proofs, name_proofs

FACTS = {"versions": {"torch": "2.13.0", "mpi": "5.0"}, "platform": {"code_digest": "ab12"}}


def make_results(*changes):
    """Analyze one case of one repeat for each of the changes of axes."""
    planned = [make_planned_case(case_id=f"case{i}") for i in range(len(changes))]
    planned = [vary(case, **own) for case, own in zip(planned, changes)]
    return analyze([make_outcomes(case, [100.0], **FACTS) for case in planned])


def make_proof(axes, model="resnet50", **changes):
    device = make_results({}).frames.repeats.devices[0]
    proof = Proof(model, device, Axes("pytorch", "1n1g", 4), {"torch": "2.13.0"}, "ab12")
    return dataclasses.replace(proof, axes=dataclasses.replace(proof.axes, **axes), **changes)


def name_all(changes, *proofs):
    """Return the column `parity_proof`, and the ids of the cases that the note is on."""
    found = name_proofs(make_results(*changes), [("p1", proof) for proof in proofs])
    noted = found.notes.case_id[found.notes.note == UNPROVEN]
    return found.case_columns.parity_proof.tolist(), noted.tolist()


AMP = {"precision": "amp-bf16"}
PAIR = {"topology": "1n2g"}


@pytest.mark.parametrize(
    ("case", "proofs", "expected"),
    [
        ({}, [({}, {})], "p1"),
        ({}, [], ""),
        (AMP, [({}, {})], ""),
        (AMP, [(AMP, {})], "p1"),
        ({}, [({}, {"model": "bert"})], ""),
        ({}, [({}, {"device_name": "H100"})], ""),
        ({}, [({}, {"versions": {"torch": "2.12.0"}})], ""),
        ({}, [({}, {"code_digest": "ab13"})], ""),
        ({"clip_global_norm": True}, [({}, {})], ""),
        ({"mode": "infer"}, [({}, {})], "p1"),
        ({"memory_format": "channels_last"}, [({}, {})], ""),
        (PAIR, [({}, {})], ""),
        (PAIR, [(PAIR, {})], ""),
        (PAIR, [({}, {}), (PAIR, {})], "p1"),
        (PAIR, [({}, {}), ({**PAIR, "gradient_sync": "horovod"}, {})], ""),
    ],
)
def test_proof_covers_a_case_on_its_own_device_with_its_own_versions_and_axes(
    case, proofs, expected
):
    made = [make_proof(axes, **changes) for axes, changes in proofs]
    assert name_all([case], *made)[0] == [expected]


def test_cases_without_proof_have_a_note_where_others_differ_in_what_they_compute():
    plain = make_proof({})
    assert name_all([{}, AMP], plain) == (["p1", ""], ["case1"])
    # without any proof, the headline says so instead
    assert name_all([{}, AMP]) == (["", ""], [])
    assert name_all([{}, {"batch_size_per_device": 2}]) == (["", ""], [])
    assert name_all([{}, {"script": "train.py", **AMP}], plain)[1] == []


def test_proofs_are_read_from_all_folders_the_latest_first(tmp_path):
    for folder, model in (("1", "bert"), ("2", "vit")):
        (tmp_path / folder).mkdir()
        write_json(tmp_path / folder / PROOFS_FILE, Proofs((make_proof({}, model),)))
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / PROOFS_FILE).write_text("{")
    found = [(folder, proof.model) for folder, proof in load_proofs(tmp_path)]
    assert found == [("2", "vit"), ("1", "bert")]
