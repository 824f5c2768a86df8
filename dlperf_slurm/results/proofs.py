"""The results of a run + the proofs of `parity` in the same results folder -> the proof of a case.

A proof covers a case with the same model, framework, versions, worker code, device, precision,
compiler and memory format. A case with several ranks needs two: of one rank, and of its
gradient_sync.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import TRAIN, WORKER
from dlperf_slurm.contract.parity import PROOFS_FILE, Proof, Proofs
from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs.decode import read_json
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.columns import TEXT
from dlperf_slurm.results.notes import TABLE

if TYPE_CHECKING:
    from pandas import DataFrame

# cases that differ on one of these are compared in the belief that they do the same work
COMPARED = ("framework", "precision", "compiler", "memory_format")
_COLUMNS = ("case_id", "model", "mode", "clip_global_norm", "gradient_sync", "world_size",
    *COMPARED)  # fmt: skip
CODE_DIGEST = "code_digest"

UNPROVEN = (
    "not verified to compute the same losses, gradients and updates as PyTorch; to verify it, run "
    "`parity` on the same device and software, with the same framework, precision, compiler, "
    "memory_format and gradient_sync"
)


# the folder of the call of `parity` that made a proof, and the proof
FoundProof = tuple[str, Proof]


def load_proofs(results_dir: Path) -> list[FoundProof]:
    """Read all proofs of parity in a results folder, the latest first; skip invalid files."""
    found: list[FoundProof] = []
    for path in sorted(results_dir.glob(f"*/{PROOFS_FILE}"), reverse=True):
        try:
            proofs = read_json(path, Proofs).proofs
        except FileProblem:
            continue
        found += ((path.parent.name, proof) for proof in proofs)
    return found


def name_proofs(results: Results, proofs: Sequence[FoundProof]) -> Results:
    """Return the results with the column `parity_proof`, and a note on each case without a proof.

    If no case has a proof there are no notes, because the headline says so once.
    """
    from pandas import DataFrame, Series, concat

    cases = results.cases
    column = Series(_find_proofs(results, proofs), dtype=TEXT).reindex(cases.index, fill_value="")
    found = replace(results, cases=cases.assign(parity_proof=column))
    unproven = list_unproven(found.cases)
    if not unproven or (column == "").all():
        return found
    added = DataFrame(
        [(case_id, TABLE, UNPROVEN) for case_id in unproven], columns=results.notes.columns
    )
    return replace(found, notes=concat([results.notes, added]))


def list_unproven(cases: "DataFrame") -> list[str]:
    """Return the ids of measured cases that no proof of parity covers.

    There are none if all cases are alike in COMPARED; an external script needs no proof.
    """
    if len(cases[[*COMPARED]].drop_duplicates()) == 1:
        return []
    is_own = (cases.script == WORKER) & (cases.repeats_measured > 0)
    return [str(case_id) for case_id in cases.index[is_own & (cases.parity_proof == "")]]


def _find_proofs(results: Results, proofs: Sequence[FoundProof]) -> dict[str, str]:
    """Return, by case id, the folders of the proofs that cover a case; "" if some are missing."""
    if not proofs:
        return {}
    known = {name for _, proof in proofs for name in proof.versions} | {CODE_DIGEST}
    facts: dict[str, set[tuple[str, str]]] = {}
    own = results.frames.facts[results.frames.facts.name.isin(known)]
    for case_id, name, value in zip(own.case_id, own.name, own.value):
        facts.setdefault(case_id, set()).add((name, value))
    devices: dict[str, set[str]] = {}
    repeats = results.frames.repeats
    for case_id, names in zip(repeats.case_id, repeats.devices):
        devices.setdefault(case_id, set()).add(names)
    return {
        case.case_id: _find_proof(
            case, facts.get(case.case_id, set()), devices.get(case.case_id, set()), proofs
        )
        for case in results.cases[[*_COLUMNS]].itertuples()
    }


def _find_proof(
    case: Any, facts: set[tuple[str, str]], devices: set[str], proofs: Sequence[FoundProof]
) -> str:
    """Return the folders of the parity proofs that cover a case; "" if one is missing.

    They are joined by spaces. `case` is a row of the frame of cases; `facts` are (name, value) of
    the versions and the code digest of its records, `devices` their device names.
    """
    own = [
        (folder, proof.axes)
        for folder, proof in proofs
        if proof.model == case.model
        and all(getattr(proof.axes, name) == getattr(case, name) for name in COMPARED)
        and devices == {proof.device_name}
        and {*proof.versions.items(), (CODE_DIGEST, proof.code_digest)} <= facts
    ]
    is_training = case.mode == TRAIN
    is_clipped = is_training and case.clip_global_norm
    found = [
        [folder for folder, axes in own
         if axes.world_size == 1 and axes.clip_global_norm == is_clipped]
    ]  # fmt: skip
    if is_training and case.world_size > 1:
        found.append(
            [folder for folder, axes in own
             if axes.world_size > 1 and axes.gradient_sync == case.gradient_sync]
        )  # fmt: skip
    return " ".join(dict.fromkeys(latest for latest, *_ in found)) if all(found) else ""
