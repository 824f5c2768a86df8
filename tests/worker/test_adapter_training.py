"""Training tests for every adapter beside plain steps: batches, accumulation, optimizers, scales.

.venv/environments/jax/bin/python -m pytest tests/worker/test_adapter_training.py --framework jax
"""

import math
from importlib.util import find_spec

import pytest
from support import sessions
from support.cases import vary

from dlperf_slurm.contract.axes import DALI, FOLDER, ON_DEVICE, ON_HOST, SHARDED, ZMQ
from dlperf_slurm.contract.case import Training
from dlperf_slurm.contract.record import STEP_SECONDS_FILE
from dlperf_slurm.worker.accuracy import sum_losses
from dlperf_slurm.worker.data_sources import open_batches
from dlperf_slurm.worker.datasets.batches import collate
from dlperf_slurm.worker.measure import Step
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.parity import compute_difference
from dlperf_slurm.worker.reference_optimizers import make_optimizer, measure_norm
from dlperf_slurm.worker.support import find_unsupported
from dlperf_slurm.worker.synthetic_batch import SyntheticSamples, make_batch
from dlperf_slurm.worker.update_rule import ADAMW, MOMENTUM, SGD

numpy = pytest.importorskip("numpy")


def pytest_generate_tests(metafunc):
    """Parametrize tests for the framework that --framework names.

    `scaled` are precisions with a constant loss scale, of the smaller model. `optimizer_model` is
    each optimizer with a model that was published with another one.
    """
    framework = metafunc.config.getoption("--framework", default=None)
    models = sessions.list_supported_models(framework)
    if "optimizer_model" in metafunc.fixturenames:
        metafunc.parametrize("optimizer_model", list_foreign_optimizers(models), ids="-".join)
    elif "model" in metafunc.fixturenames:
        metafunc.parametrize("model", models)
    if "scaled" in metafunc.fixturenames:
        cases = list_scaled(framework) if framework else []
        ids = [case.axes.precision for case in cases]
        metafunc.parametrize("scaled", cases, ids=ids)


def list_foreign_optimizers(models):
    """List (optimizer, model) pairs; no model was published with sgd, so one model is enough."""
    rules = {model: load_model(model).Definition().make_rule(1).name for model in models}
    foreign = [(name, m) for name in (MOMENTUM, ADAMW) for m in models if rules[m] != name]
    return [*((SGD, model) for model in models[-1:]), *foreign]


def list_scaled(framework):
    cases = [
        sessions.make_case(framework, "bert", precision=precision, loss_scale=128)
        for precision in ("amp-fp16", "fp16")
    ]
    return [case for case in cases if find_unsupported(case) is None]


def make_rank_batch(case, rank):
    return make_batch(sessions.make_definition(case), case.axes.batch_size, case.seed, rank)


def test_loaded_batch_is_the_one_that_is_used(framework, model):
    case = sessions.make_case(framework, model)
    session = sessions.start(case)
    before = session.evaluate_loss()
    session.load(session.stage(make_rank_batch(case, rank=1)))
    other = sessions.start(case, rank=1)
    assert session.evaluate_loss() == pytest.approx(other.evaluate_loss(), rel=1e-6)
    assert session.evaluate_loss() != pytest.approx(before, rel=1e-5)
    session.step()
    other.step()
    assert session.read_loss() == pytest.approx(other.read_loss(), rel=1e-6)
    assert compute_difference(session.read_weights(), other.read_weights()).relative < 1e-5


def test_pipeline_gives_the_samples_asked_for_in_their_order(framework, adapter):
    case = sessions.make_case(framework, "bert", data="dataset", data_workers=2)
    sessions.skip_unsupported(case)
    found, expected = sessions.run_elsewhere(read_through_pipeline, case)
    assert found == pytest.approx(expected, rel=1e-6)
    assert len(set(expected)) == len(expected)


def read_through_pipeline(case):
    """Return the losses of batches from the pipeline, and of the same batches made without it."""
    session = sessions.start(case)
    dataset = SyntheticSamples(sessions.make_definition(case), 8, case.seed)
    keys = [[(epoch, (epoch + i) % 8) for i in range(4)] for epoch in range(5)]
    found, expected = [], []
    for staged in session.open_pipeline(dataset, keys):
        session.load(staged)
        found.append(session.evaluate_loss())
    for batch in keys:
        samples = [dataset.read_sample(index, epoch) for epoch, index in batch]
        session.load(session.stage(collate(samples)))
        expected.append(session.evaluate_loss())
    return found, expected


def test_every_data_source_trains_on_the_samples_of_the_rank(framework, adapter):
    # BERT without dropout: the loss of a batch does not depend on the order of its samples
    case = sessions.make_case(
        framework, "bert", warmup_steps=1, measured_steps=3, prefetch_batches=1
    )
    # data sources with files have tests of their own
    left_out = [ON_DEVICE, FOLDER, DALI, *([] if find_spec("zmq") else [ZMQ])]
    sources = [source for source in adapter.SUPPORTED["data"] if source not in left_out]
    cases = [vary(case, data=source) for source in sources]
    losses = sessions.run_elsewhere(take_fed_losses, cases)
    expected = sessions.take_losses(case, 4)
    assert losses == {source: pytest.approx(expected, rel=1e-4) for source in sources}
    if ZMQ in left_out:
        pytest.skip("data 'zmq' needs pyzmq; the other data sources have passed")


def take_fed_losses(cases):
    """Return the losses by data source, all in one process."""
    losses = {}
    for case in cases:
        session = sessions.start(case)
        batches = open_batches(case, sessions.ALONE, session)
        step = Step(session, batches, case, 4)
        losses[case.axes.data] = []
        for _ in range(4):
            step()
            losses[case.axes.data].append(session.read_loss())
        assert all(0 < seconds < 30 for seconds in step.wait_seconds)
        # no more batches than the steps took, except of the one that is always there
        assert case.axes.data == ON_HOST or next(batches, None) is None
    return losses


def test_accumulated_gradient_is_the_mean_over_the_batches(framework, adapter):
    case = sessions.make_case(framework, "bert", gradient_accumulation=2)
    sessions.skip_unsupported(case)
    plain = vary(case, gradient_accumulation=1)
    gradients = [sessions.start(plain, rank).compute_gradients() for rank in (0, 1)]
    mean = {name: (gradients[0][name] + gradients[1][name]) / 2 for name in gradients[0]}

    session = sessions.start(case)
    before = session.read_weights()
    session.accumulate()
    assert compute_difference(session.read_weights(), before).relative == 0.0
    session.load(session.stage(make_rank_batch(case, rank=1)))
    session.step()
    expected = {name: values.astype("float64") for name, values in before.items()}
    make_optimizer(case, sessions.make_definition(case)).update(expected, mean)
    found = sessions.find_update_difference(case, before, session.read_weights(), expected)
    assert found.relative < 1e-3, found


def test_accumulation_begins_anew_in_every_step(framework, adapter):
    case = sessions.make_case(framework, "resnet50", gradient_accumulation=3)
    sessions.skip_unsupported(case)
    session = sessions.start(case)
    found = sessions.follow_rule(session, case, Step(session, None, case, 2), 2)
    assert found.relative < 1e-4, found


@pytest.mark.exhaustive
@sessions.needs_mpirun
def test_two_ranks_average_what_each_has_accumulated(framework, adapter, tmp_path):
    case = sessions.make_case(framework, "bert")
    for distribution in adapter.SUPPORTED["gradient_sync"]:
        pair = vary(case, devices_per_node=2, gradient_sync=distribution, gradient_accumulation=2)
        if not sessions.find_lack(pair):
            folder = tmp_path / distribution
            folder.mkdir()
            # MindSpore compiles for minutes on a busy machine
            parity, gradients = sessions.verify_on_ranks(pair, folder, timeout=900)
            joined = vary(case, batch_size_per_device=2 * case.axes.batch_size)
            # accumulation takes the same batch twice
            expected = sessions.start(joined).compute_gradients()
            assert compute_difference(gradients, expected).relative < 1e-4, distribution
            assert parity.ranks.relative < 1e-6
            assert parity.updates.relative < 1e-5


def test_each_optimizer_follows_its_update_rule(framework, adapter, optimizer_model):
    optimizer, model = optimizer_model
    case = sessions.make_case(framework, model, optimizer=optimizer)
    sessions.skip_unsupported(case)
    session = sessions.start(case)
    found = sessions.follow_rule(session, case, session.step, 3)
    assert found.relative < 1e-5, found


def test_update_rule_is_followed_at_changing_learning_rates(framework):
    for model in ("bert", "resnet50"):
        case = sessions.make_case(framework, model)
        sessions.follow_learning_rates(sessions.start(case), case)


def test_constant_loss_scale_trains_as_none_does_and_is_not_in_the_gradients(framework, scaled):
    norm, losses = sessions.run_elsewhere(take_norm_and_losses, scaled, 10)
    plain = take_norm_and_losses(sessions.make_case(framework, scaled.model), 1)
    assert norm == pytest.approx(plain[0], rel=0.1)
    assert losses[0] == pytest.approx(plain[1][0], rel=1e-2)
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.05


def take_norm_and_losses(case, steps):
    """Return the norm of the gradients before the first step, and the loss of each step."""
    session = sessions.start(case)
    norm = measure_norm(session.compute_gradients().values())
    losses = []
    for _ in range(steps):
        session.step()
        losses.append(session.read_loss())
    return norm, losses


def test_predicted_logits_are_those_of_evaluation_whatever_else_is_in_their_batch(framework):
    case = sessions.make_case(framework, "resnet50")
    session = sessions.start(case)
    session.step()
    loss = session.evaluate_loss()
    batch = make_rank_batch(case, rank=0)
    logits = session.predict(batch)
    assert logits.shape == (4, 10)
    assert logits.dtype == "float32"
    assert sum_losses(logits, batch["labels"]) / 4 == pytest.approx(loss, rel=1e-5)
    part = session.predict({name: values[:3] for name, values in batch.items()})
    numpy.testing.assert_allclose(part, logits[:3], rtol=1e-4, atol=1e-5)
    # the batch of another rank does not become that of the session
    session.predict(make_rank_batch(case, rank=1))
    assert session.evaluate_loss() == loss


def test_labels_may_be_probabilities(framework, adapter):
    """Test labels as of mixup, which mixes two images."""
    case = sessions.make_case(framework, "resnet50")
    batch = make_rank_batch(case, rank=0)
    one_hot = numpy.eye(10, dtype="float32")[batch["labels"]]
    other = numpy.eye(10, dtype="float32")[(batch["labels"] + 1) % 10]
    mixed = sessions.make_case(framework, "resnet50", training=sessions.MIXTURES)
    sessions.skip_unsupported(mixed)
    session = sessions.start(mixed)
    losses = []
    for labels in (one_hot, other, 0.3 * one_hot + 0.7 * other):
        session.load(session.stage({**batch, "labels": labels.astype("float32")}))
        losses.append(session.evaluate_loss())
    assert losses[0] == pytest.approx(sessions.start(case).evaluate_loss(), rel=1e-5)
    assert losses[2] == pytest.approx(0.3 * losses[0] + 0.7 * losses[1], rel=1e-5)
    session.step()
    assert session.read_loss() != pytest.approx(sessions.take_losses(case, 1)[0], rel=1e-4)


@sessions.needs_mpirun
def test_training_over_epochs_learns_and_is_validated_on_all_samples(framework, adapter, tmp_path):
    """Train on two classes, dark and bright; 5 of the 7 validation images are bright."""
    write_images(tmp_path / "data")
    # a small rate: with a larger one, twelve steps of batch normalization over four samples diverge
    training = Training(epochs=3, learning_rate=0.003, schedule="cosine", warmup_epochs=0.5)
    case = sessions.make_case(
        framework,
        "resnet50",
        model_parameters={**sessions.SMALL["resnet50"], "image_size": 32},
        devices_per_node=2,
        gradient_sync=find_possible_distribution(framework, adapter),
        data=FOLDER,
        data_dir=str(tmp_path / "data"),
        training=training,
    )
    record = sessions.measure_on_ranks(case, tmp_path / "attempt")
    assert [epoch.number for epoch in record.epochs] == [1, 2, 3]
    # 32 samples per epoch, four per step on each of two ranks
    assert record.trained_samples == 3 * 32
    sevenths = [epoch.top1 * 7 for epoch in record.epochs]
    assert sevenths == pytest.approx([round(value) for value in sevenths])
    # better than classifying all images as bright
    assert max(sevenths) > 5.5
    assert record.epochs[-1].training_loss < 0.75 * record.epochs[0].training_loss
    assert numpy.load(str(tmp_path / "attempt" / STEP_SECONDS_FILE)).shape == (2, 12)
    assert all(0 < rank.data_wait_seconds < rank.window_seconds for rank in record.ranks)


def find_possible_distribution(framework, adapter):
    pair = sessions.make_case(framework, "resnet50", devices_per_node=2)
    pairs = (vary(pair, gradient_sync=name) for name in adapter.SUPPORTED["gradient_sync"])
    return next(p.axes.gradient_sync for p in pairs if not sessions.find_lack(p))


def write_images(folder):
    from PIL import Image

    counts = {"train": {"bright": 16, "dark": 16}, "val": {"bright": 5, "dark": 2}}
    for split, classes in counts.items():
        for name, count in classes.items():
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                level = (200 if name == "bright" else 20) + number
                Image.new("RGB", (40, 36), (level,) * 3).save(
                    str(folder / split / name / f"{number}.png")
                )


@sessions.needs_mpirun
@pytest.mark.parametrize(
    "changes",
    [
        {"clip_global_norm": True, "gradient_accumulation": 2},
        pytest.param({"activation_checkpointing": True}, marks=pytest.mark.exhaustive),
        pytest.param({"precision": "amp-fp16"}, marks=pytest.mark.exhaustive),
        pytest.param({"optimizer": "momentum"}, marks=pytest.mark.exhaustive),
    ],
)
def test_sharded_weights_become_those_of_whole_ones(framework, adapter, changes, tmp_path):
    parities = []
    for distribution in ("native", SHARDED):
        case = sessions.make_case(
            framework, "llama", devices_per_node=2, gradient_sync=distribution, **changes
        )
        sessions.skip_unsupported(case)
        folder = tmp_path / distribution
        folder.mkdir()
        parity, _ = sessions.verify_on_ranks(case, folder)
        parities.append(parity)
    whole, split = parities
    # PyTorch gathers 16 bits of all weights, JAX of those that are factors of products
    is_rounded = framework == "pytorch" and case.axes.precision == "amp-fp16"
    tolerance = 5e-4 if is_rounded else 1e-5
    assert split.gradient_norm == pytest.approx(whole.gradient_norm, rel=tolerance)
    for loss in ("initial_loss", "trained_loss", "trained_evaluation_loss"):
        assert getattr(split, loss) == pytest.approx(getattr(whole, loss), rel=tolerance)
    assert split.updates.relative == pytest.approx(whole.updates.relative, rel=0.1, abs=1e-5)


def test_checkpointed_activations_change_no_gradient(framework, adapter):
    case = sessions.make_case(framework, "bert")
    # recomputed activations must have the same dropout mask
    case = vary(case, model_parameters={**case.model_parameters, "dropout": 0.5})
    checkpointed = vary(case, activation_checkpointing=True)
    sessions.skip_unsupported(checkpointed)
    gradients = [sessions.start(one).compute_gradients() for one in (case, checkpointed)]
    assert compute_difference(*gradients).relative < 1e-6


@pytest.mark.exhaustive
@sessions.needs_mpirun
def test_sharded_weights_of_16_bits_are_clipped_as_whole_ones(framework, adapter, tmp_path):
    losses = []
    for distribution in ("native", SHARDED):
        case = sessions.make_case(
            framework,
            "llama",
            devices_per_node=2,
            gradient_sync=distribution,
            precision="bf16",
            clip_global_norm=True,
        )
        sessions.skip_unsupported(case)
        record = sessions.measure_on_ranks(case, tmp_path / distribution)
        losses.append([rank.final_loss for rank in record.ranks])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
