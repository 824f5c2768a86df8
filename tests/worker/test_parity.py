"""`worker verify`: what it writes, what it refuses, and that it sees work which is not the same."""

import math
from importlib import import_module

import pytest
from support import sessions
from support.cases import vary

from dlperf_slurm.contract.axes import DYNAMIC
from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.parity import PARITY_FILE, Parity
from dlperf_slurm.worker import work
from dlperf_slurm.worker.__main__ import main
from dlperf_slurm.worker.failed_record import read_failures
from dlperf_slurm.worker.models import bert, load_model, resnet50, vit
from dlperf_slurm.worker.parity import (
    GRADIENTS_FILE,
    CaseMismatchError,
    check_shapes,
    compute_difference,
    compute_update_difference,
    find_uncertain,
    leave_out,
    read_arrays,
    read_mean,
    write_arrays,
)
from dlperf_slurm.worker.reference_optimizers import measure_norm

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

# larger than for single values: what is wrong must be beyond the tolerances
SMALL = {
    **{name: dict(load_model(name).VERIFICATION.model_parameters) for name in sessions.SMALL},
    "bert": {
        **sessions.SMALL["bert"],
        "layers": 1,
        "hidden_size": 128,
        "intermediate_size": 256,
        "max_positions": 16,
    },
    "resnet50": {**sessions.SMALL["resnet50"], "label_smoothing": 0.1},
}
MODELS = sorted(SMALL)


def make_case(model, **changes):
    plain = {"model_parameters": SMALL[model], "batch_size_per_device": 8}
    return vary(sessions.make_case("pytorch", model, **plain), **changes)


def verify(case, folder, *options):
    """Run the command in this process; its exit code."""
    folder.mkdir()
    write_json(folder / CASE_FILE, case)
    return main(["verify", *options, str(folder)])


def verify_well(case, folder, *options):
    assert verify(case, folder, *options) == 0
    return read_json(folder / PARITY_FILE, Parity)


def make_arrays(**values):
    return {name: numpy.array(value, numpy.float32) for name, value in values.items()}


@pytest.mark.parametrize(
    ("arrays", "expected", "relative", "parameter"),
    [
        # to the parameter's own norm
        ({"a": [3.0], "b": [1.1]}, {"a": [3.0], "b": [1.0]}, 0.1, "b"),
        ({"a": [0.0, 1.0]}, {"a": [0.0, 1.0]}, 0.0, ""),
        # a gradient that is zero but for rounding is measured by a part of the whole
        ({"a": [100.0], "b": [1e-7]}, {"a": [100.0], "b": [-1e-7]}, 2e-7 / (100 * 1e-3), "b"),
        ({"a": [math.nan], "b": [5.0]}, {"a": [1.0], "b": [1.0]}, math.inf, "a"),
        ({"a": [math.inf], "b": [5.0]}, {"a": [1.0], "b": [1.0]}, math.inf, "a"),
    ],
)
def test_difference_is_relative(arrays, expected, relative, parameter):
    found = compute_difference(make_arrays(**arrays), make_arrays(**expected))
    assert found.relative == pytest.approx(relative, rel=1e-5)
    assert found.parameter == parameter


def test_update_is_compared_beyond_the_rounding_of_the_weights_where_there_is_a_gradient():
    initial = make_arrays(a=[1.0])
    expected = {"a": initial["a"].astype("float64") - 1e-6}
    final = {"a": expected["a"].astype("float32")}
    assert abs(final["a"] - expected["a"]) > 1e-9
    assert compute_update_difference(initial, final, expected).relative == 0.0
    # twice as large
    initial, final = make_arrays(a=[1.0], b=[1.0]), make_arrays(a=[0.5], b=[0.5])
    expected = {"a": numpy.array([0.5]), "b": numpy.array([0.75])}
    found = compute_update_difference(initial, final, expected)
    assert (found.relative, found.parameter) == (pytest.approx(1.0, rel=1e-5), "b")
    assert compute_update_difference(initial, final, expected, ("b",)).relative == 0.0


def test_element_of_a_gradient_that_has_cancelled_is_not_compared():
    # as it was: AdamW's epsilon is 1e-8, of a clipped gradient whose root mean square is 1e-3
    gradient = numpy.full(10_000, 1e-3, numpy.float32)
    gradient[:3] = 1.1e-8, -1.1e-8, 0.0
    uncertain = {"a": find_uncertain(gradient)}
    assert uncertain["a"].nonzero()[0].tolist() == [0, 1]
    initial = {"a": numpy.zeros(10_000, numpy.float32)}
    expected = {"a": numpy.full(10_000, 1e-4)}
    final = {"a": expected["a"].astype("float32")}
    final["a"][0] *= 1.02
    found = compute_update_difference(initial, final, expected)
    assert found.relative == pytest.approx(0.02 / 100, rel=1e-2)
    final = leave_out(final, expected, uncertain)
    assert compute_update_difference(initial, final, expected).relative < 1e-7
    # nor is anything else left out
    final["a"][2] *= 1.02
    assert compute_update_difference(initial, final, expected).relative > 1e-4


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (make_arrays(a=[1.0]), r"gradients: b is missing in the framework"),
        (make_arrays(a=[1.0], b=[1.0], c=[1.0]), r"gradients: c is missing in the definition"),
        (
            make_arrays(a=[[1.0]], b=[1.0]),
            r"gradients: a has shape and type \(\(1, 1\), 'float32'\); expected: \(1,\)",
        ),
        (
            {"a": numpy.ones(1), "b": numpy.ones(1)},
            r"gradients: a has shape and type \(\(1,\), 'float64'\); expected: \(1,\) in float32",
        ),
    ],
)
def test_arrays_of_other_names_shapes_or_types_are_named(arrays, message):
    with pytest.raises(CaseMismatchError, match=message):
        check_shapes(arrays, make_arrays(a=[1.0], b=[1.0]), "gradients")


def test_mean_of_several_folders_is_that_of_each_gradient(tmp_path):
    for name, value in (("one", 1.0), ("two", 4.0)):
        (tmp_path / name).mkdir()
        write_arrays(tmp_path / name / GRADIENTS_FILE, make_arrays(a=[value, 0.0]))
    assert read_mean([tmp_path / "one", tmp_path / "two"])["a"].tolist() == [2.5, 0.0]


@pytest.mark.parametrize("model", MODELS)
def test_parity_file_says_what_pytorch_computes(model, tmp_path, torch):
    case = make_case(model)
    parity = verify_well(case, tmp_path / "a")
    assert parity.case == case
    assert parity.parameter_count == load_model(model).Definition(**SMALL[model]).parameter_count
    assert parity.trained_loss < parity.initial_loss
    assert parity.versions["torch"] == str(torch.__version__)
    assert parity.updates.relative < 1e-6
    assert parity.ranks.relative == 0.0
    assert parity.gradients == ()
    gradients = read_arrays(tmp_path / "a" / GRADIENTS_FILE)
    norm = math.sqrt(sum(float((g.astype("float64") ** 2).sum()) for g in gradients.values()))
    assert parity.gradient_norm == pytest.approx(norm, rel=1e-12)
    # the model names exactly the parameters whose gradient is rounding
    named = [name for name in gradients if name.endswith(load_model(model).ZERO_GRADIENTS)]
    assert [n for n, values in gradients.items() if measure_norm([values]) < 1e-6 * norm] == named
    # batch norm makes evaluation another loss than training
    is_same = parity.initial_evaluation_loss == pytest.approx(parity.initial_loss, rel=1e-3)
    assert is_same != load_model(model).HAS_BATCH_STATISTICS


def test_uncertain_elements_have_no_part_in_what_is_written(tmp_path, torch, monkeypatch):
    assert 0 < verify_well(make_case("vit"), tmp_path / "few").updates.relative < 1e-5
    monkeypatch.setattr("dlperf_slurm.worker.parity.UNCERTAIN_PART", 1e9)
    assert verify_well(make_case("vit"), tmp_path / "all").updates.relative == 0


def patch_call(monkeypatch, module, name, **arguments):
    """Have a function called with other arguments."""
    plain = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **k: plain(*a, **{**k, **arguments}))


# What was wrong in published comparisons, and what shows it beyond the tolerance of each.
@pytest.mark.parametrize("is_clipped", [False, True])
@pytest.mark.parametrize(
    ("model", "optimizer", "changes"),
    [
        ("resnet50", "SGD", {"momentum": 0.9}),
        ("resnet50", "SGD", {"lr": 0.016}),
        ("bert", "AdamW", {"betas": (0.9, 0.98)}),
        ("bert", "AdamW", {"eps": 1e-8}),
    ],
)
def test_wrong_optimizer_is_seen_in_its_updates(
    model, optimizer, changes, is_clipped, tmp_path, torch, monkeypatch
):
    patch_call(monkeypatch, torch.optim, optimizer, **changes)
    found = verify_well(make_case(model, clip_global_norm=is_clipped), tmp_path / "a")
    assert found.updates.relative > 1e-4


@pytest.mark.parametrize("model", MODELS)
def test_decay_of_biases_and_normalizations_is_seen(model, tmp_path, torch, monkeypatch):
    monkeypatch.setattr(
        import_module("dlperf_slurm.worker.frameworks.pytorch.training"),
        "group_by_decay",
        lambda parameters, decay: [{"params": list(parameters), "weight_decay": decay}],
    )
    found = verify_well(make_case(model), tmp_path / "a")
    assert found.updates.relative > 1e-4
    assert "normalization.weight" in found.updates.parameter


@pytest.mark.parametrize("model", MODELS)
def test_clip_at_another_norm_is_seen(model, tmp_path, torch, monkeypatch):
    plain = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda p, norm: plain(p, 2 * norm))
    found = verify_well(make_case(model, clip_global_norm=True), tmp_path / "a")
    assert found.updates.relative > 1e-4


@pytest.mark.parametrize(
    ("model", "owner", "name", "other", "least"),
    [
        ("resnet50", resnet50.Definition, "BATCH_NORM_EPSILON", 1e-3, 1e-3),
        ("bert", bert.Definition, "LAYER_NORM_EPSILON", 1e-5, 1e-3),
        ("vit", vit.Definition, "LAYER_NORM_EPSILON", 1e-3, 1e-3),
        # a function of PyTorch that is called with other arguments
        ("bert", None, "gelu", {"approximate": "tanh"}, 1e-4),
        ("vit", None, "gelu", {"approximate": "tanh"}, 2e-5),
        ("llama", None, "scaled_dot_product_attention", {"is_causal": False}, 1e-2),
        ("resnet50", None, "cross_entropy", {"label_smoothing": 0.0}, 1e-2),
    ],
)
def test_other_model_is_seen_in_the_gradients(
    model, owner, name, other, least, tmp_path, torch, monkeypatch
):
    case = make_case(model)
    verify_well(case, tmp_path / "before")
    if owner is None:
        patch_call(monkeypatch, torch.nn.functional, name, **other)
    else:
        monkeypatch.setattr(owner, name, other)
    found = verify_well(case, tmp_path / "after", f"--reference={tmp_path / 'before'}")
    assert found.gradients[0].relative > least


@pytest.mark.parametrize(
    ("precision", "wrong_factor"), [("amp-bf16", 0), ("amp-fp16", 0.5), ("bf16", 0), ("fp16", 0.5)]
)
def test_wrong_gradient_in_a_reduced_precision_is_seen(precision, wrong_factor, tmp_path, torch):
    """No difference is above 1."""
    from dlperf_slurm.checks.parity.tolerances import choose_gradient_tolerance

    verification = resnet50.VERIFICATION
    sizes = {**verification.model_parameters, **verification.reduced_precision_parameters}
    case = make_case("resnet50", model_parameters=sizes, batch_size_per_device=16, seed=4)
    verify_well(case, tmp_path / "fp32")
    case = vary(case, precision=precision, loss_scale=128 if "fp16" in precision else DYNAMIC)
    session = sessions.start(case)
    gradients = session.compute_gradients()
    expected = read_mean([tmp_path / "fp32"])
    tolerance = choose_gradient_tolerance(case, measure_norm(expected.values()))
    assert compute_difference(gradients, expected).relative <= tolerance
    gradients["blocks.1.expand.normalization.weight"] *= wrong_factor
    assert tolerance < compute_difference(gradients, expected).relative <= 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize(("momentum", "is_right"), [(0.875, True), (0.5, False)])
def test_updates_of_16_bit_weights_are_those_of_the_rounded_rule(
    precision, momentum, is_right, tmp_path, torch, monkeypatch
):
    from dlperf_slurm.checks.parity.tolerances import check_updates

    patch_call(monkeypatch, torch.optim, "SGD", momentum=momentum)
    case = make_case("resnet50", precision=precision, loss_scale=128)
    assert check_updates(verify_well(case, tmp_path / "a")).is_within == is_right


def test_batch_norms_momentum_is_seen_in_evaluation_after_the_steps(tmp_path, torch, monkeypatch):
    expected = verify_well(make_case("resnet50"), tmp_path / "a")
    monkeypatch.setattr(resnet50.Definition, "BATCH_NORM_MOMENTUM", 0.01)
    found = verify_well(make_case("resnet50"), tmp_path / "b")
    assert found.initial_evaluation_loss == expected.initial_evaluation_loss
    assert found.trained_loss == expected.trained_loss
    assert abs((found.trained_evaluation_loss / expected.trained_evaluation_loss) - 1) > 3e-3


def test_weights_of_another_seed_end_the_command(tmp_path, torch, monkeypatch, capsys):
    plain = work.generate_weights
    monkeypatch.setattr(work, "generate_weights", lambda d, seed: plain(d, seed + 1))
    assert verify(make_case("bert"), tmp_path / "a") == 1
    assert "weights of " in capsys.readouterr().err
    (failure,) = read_failures(tmp_path / "a")
    assert failure.error == "CaseMismatchError"
    assert not (tmp_path / "a" / PARITY_FILE).exists()


def test_data_rank_chooses_the_batch(tmp_path, torch):
    for rank in range(2):
        verify_well(make_case("resnet50"), tmp_path / str(rank), f"--data-rank={rank}")
    first, second = (read_arrays(tmp_path / str(rank) / GRADIENTS_FILE) for rank in range(2))
    assert compute_difference(first, second).relative > 0.1
