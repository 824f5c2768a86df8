"""Tests of what is particular to the TensorFlow 1 adapter, with the real TensorFlow."""

import math
import multiprocessing
import resource
import time
from collections import Counter
from dataclasses import replace

import pytest
from support import sessions
from support.cases import vary

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.worker import servers
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.frameworks import load_adapter, start_session, tensorflow
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
from dlperf_slurm.worker.parity import compute_difference
from dlperf_slurm.worker.ranks import find_free_port
from dlperf_slurm.worker.work import Work

INSTALL = "needs TensorFlow 1: dlperf-slurm env create tensorflow1"
tf = pytest.importorskip("tensorflow", reason=INSTALL)
if not tf.__version__.startswith("1."):
    pytest.skip(INSTALL, allow_module_level=True)
numpy = pytest.importorskip("numpy")

from dlperf_slurm.worker.frameworks.tensorflow import layers  # noqa: E402
from dlperf_slurm.worker.frameworks.tensorflow.parameter_servers import format_server_device  # noqa: E402
from dlperf_slurm.worker.frameworks.tensorflow1 import graph, training  # noqa: E402
from dlperf_slurm.worker.frameworks.tensorflow1.parameter_servers import (  # noqa: E402
    ParameterServers,
)
from dlperf_slurm.worker.frameworks.tensorflow1.training import LossScale  # noqa: E402

ADAPTER = load_adapter("tensorflow1")
CASE = sessions.make_case("tensorflow1", "bert")


@pytest.fixture
def run():
    """Return a function that initializes a test's own graph and fetches from it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:

        def initialize_and_run(*fetches):
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(fetches)

        yield initialize_and_run


def read_step_graph(session):
    """Return the nodes that a step executes, after TensorFlow's own graph optimizers."""
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    found = tf.compat.v1.RunMetadata()
    session._session.run(session._program.step, options=options, run_metadata=found)
    return [node for graph in found.partition_graphs for node in graph.node]


def test_batch_norm_has_the_epsilon_asked_for_and_moves_its_statistics(run):
    x = numpy.random.RandomState(3).standard_normal((4, 2, 2, 3)).astype("float32") * 1e-2
    normalization = layers.BatchNorm2d(3, epsilon=1e-5, momentum=0.1)
    y = normalization(tf.constant(x), training=True)
    moves = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    found, mean, variance = run(y, *moves)
    rows = x.reshape(-1, 3).astype("float64")
    expected = (x - rows.mean(0)) / numpy.sqrt(rows.var(0) + 1e-5)
    # tf.nn's epsilon of 1.001e-5 would be off by 5e-5
    numpy.testing.assert_allclose(found, expected, atol=1e-5)
    numpy.testing.assert_allclose(mean, 0.1 * rows.mean(0), rtol=1e-4)
    numpy.testing.assert_allclose(variance, 0.9 + 0.1 * rows.var(0, ddof=1), rtol=1e-6)


def test_gelu_is_the_exact_one(run):
    x = numpy.linspace(-4, 4, 41, dtype="float32")
    expected = [value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in x.tolist()]
    numpy.testing.assert_allclose(run(layers.gelu(tf.constant(x)))[0], expected, atol=1e-6)


def test_gathered_rows_have_a_dense_gradient_that_adds_up_repeats(run):
    weight = layers.make_variable([4, 2])
    rows = layers.gather_rows(weight, tf.constant([[1, 3], [1, 1]], tf.int64))
    (gradient,) = tf.gradients(tf.reduce_sum(rows), [weight])
    assert isinstance(gradient, tf.Tensor)
    numpy.testing.assert_array_equal(run(gradient)[0], [[0, 0], [3, 3], [0, 0], [1, 1]])


@pytest.mark.parametrize("model", ["bert", "llama", "resnet50", "vit"])
def test_amp_computes_products_and_convolutions_in_float16(model):
    case = sessions.make_case("tensorflow1", model, precision="amp-fp16")
    nodes = read_step_graph(sessions.start(case))
    heavy = [node for node in nodes if node.op.startswith(("Conv2D", "MatMul", "BatchMatMul"))]
    assert len(heavy) > 20
    assert {tf.as_dtype(node.attr["T"].type) for node in heavy} == {tf.float16}


def test_overflow_skips_the_step_and_halves_the_scale():
    session = sessions.start(vary(CASE, precision="amp-fp16"))
    before = session.read_weights()
    scale = session._program.loss_scale.value
    session._session.run(scale.initializer, {scale.initializer.inputs[1]: 2.0**40})
    session.step()
    assert session._session.run(scale) == 2.0**39
    assert compute_difference(session.read_weights(), before).relative == 0.0


def test_scale_doubles_after_enough_finite_steps(monkeypatch):
    monkeypatch.setattr(LossScale, "GROWTH_STEPS", 2)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        scale = LossScale()
        step = scale.apply([tf.constant(1.0)], lambda gradients: tf.group(*gradients))
        session.run(tf.compat.v1.global_variables_initializer())
        values = []
        for _ in range(4):
            session.run(step)
            values.append(session.run(scale.value) / LossScale.INITIAL)
    assert values == [1.0, 2.0, 2.0, 4.0]


def test_step_neither_drops_nor_repeats_a_convolution():
    case = sessions.make_case("tensorflow1", "resnet50")
    nodes = read_step_graph(sessions.start(case))
    operations = Counter(node.op for node in nodes)
    convolutions = len(list(sessions.make_definition(case).list_convolutions()))
    forward = operations["Conv2D"] + operations["_FusedConv2D"]
    assert forward == convolutions
    assert operations["Conv2DBackpropFilter"] == convolutions
    # the images need no gradient
    assert operations["Conv2DBackpropInput"] == convolutions - 1


def test_nothing_can_be_added_to_the_graph_of_a_session():
    session = sessions.start(CASE)
    with session._session.graph.as_default(), pytest.raises(RuntimeError, match="finalized"):
        tf.constant(1.0)


def test_xla_compiles_most_of_a_step_in_the_first_one(monkeypatch):
    # a user's flag must not switch compilation for the CPU off
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit=false")
    seconds, operations = sessions.run_elsewhere(take_compiled_steps, vary(CASE, compiler="xla"))
    assert operations["_XlaRun"] > 0
    # attention's products, in every layer, are compiled
    assert operations["BatchMatMulV2"] == 0
    assert max(seconds[1:]) < seconds[0] / 4


def take_compiled_steps(case):
    session = sessions.start(case)
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        session.step()
        seconds.append(time.perf_counter() - started)
    return seconds, Counter(node.op for node in read_step_graph(session))


def test_a_rank_with_one_cpu_keeps_to_it():
    parameters = {**sessions.SMALL["bert"], "hidden_size": 512, "intermediate_size": 2048}
    case = vary(CASE, model_parameters=parameters, batch_size_per_device=8)
    assert sessions.run_elsewhere(measure_busy_cpus, case) < 1.2


def measure_busy_cpus(case):
    """Return the CPU seconds of all threads per second of a few steps."""
    session = sessions.start(case)
    session.step()
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(5):
        session.step()
    after, ended = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_seconds / (ended - started)


def test_ranks_wait_for_a_late_one_and_average_in_several_packs():
    ports = [find_free_port(rank, 2) for rank in range(2)]
    placements = [
        replace(
            sessions.ALONE,
            rank=rank,
            local_rank=rank,
            world_size=2,
            rank_addresses=tuple(f"127.0.0.1:{port}" for port in ports),
        )
        for rank in range(2)
    ]
    case = vary(CASE, devices_per_node=2)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        arguments = [(case, rank_info) for rank_info in placements]
        found = pool.starmap_async(compute_gradients_in_packs, arguments, 1).get(120)
    own = [sessions.start(CASE, rank).compute_gradients() for rank in range(2)]
    mean = {name: (own[0][name] + own[1][name]) / 2 for name in own[0]}
    for gradients in found:
        assert compute_difference(gradients, mean).relative < 1e-5


def compute_gradients_in_packs(case, rank_info):
    """Compute gradients; rank 0, the leader, joins only when the other rank already waits."""
    training.BYTES_PER_PACK = 2**12
    host, _, port = rank_info.rank_addresses[1].rpartition(":")
    while rank_info.rank == 0 and not servers.is_listening(host, int(port)):
        time.sleep(0.1)
    return start_session(case, rank_info).compute_gradients()


def test_packs_hold_neighbours_up_to_their_size(monkeypatch):
    monkeypatch.setattr(training, "BYTES_PER_PACK", 40)
    with tf.Graph().as_default():
        gradients = [tf.zeros([size]) for size in (4, 6, 1, 100, 2)]
    packs = list(training.pack_gradients(gradients))
    assert packs == [gradients[:2], gradients[2:3], gradients[3:4], gradients[4:]]


def test_weights_are_spread_over_the_servers_by_their_bytes_and_nothing_else_is():
    cluster = servers.Cluster(("a:1", "b:1"), ("a:2", "b:2"), 1, "b:1")
    placed = ParameterServers(cluster, "", "/device:CPU:0")
    case = sessions.make_case("tensorflow1", "bert")
    with tf.Graph().as_default(), tf.device(placed.device), placed.place_variables():
        forward = graph.build_forward(case, Work(case, sessions.ALONE, tensorflow.__name__), {})
        statistic = layers.make_variable([4], trainable=False)
    scalars = Counter()
    for variable, _ in forward.parameters.values():
        scalars[variable.device] += variable.shape.num_elements()
    assert sorted(scalars) == [format_server_device(task) for task in range(2)]
    assert max(scalars.values()) < 1.1 * min(scalars.values())
    assert statistic.device == placed.device


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("bert", {"precision": "amp-fp16"}),
        ("bert", {"compiler": "xla"}),
        ("resnet50", {"optimizer": "sgd"}),
    ],
)
def test_one_rank_with_a_server_trains_as_one_without(model, changes):
    case = sessions.make_case("tensorflow1", model, clip_global_norm=True, **changes)
    served = vary(case, gradient_sync="parameter_server")
    losses = sessions.run_elsewhere(sessions.take_losses, served, 4)
    assert losses == pytest.approx(sessions.take_losses(case, 4), rel=1e-4)


def test_step_pulls_each_weight_from_its_server_once():
    served = vary(CASE, gradient_sync="parameter_server")
    pulled = sessions.run_elsewhere(count_pulled_weights, served)
    # also the tied embedding, which the model reads twice
    assert pulled == len(list(sessions.make_definition(CASE).list_parameters()))


def count_pulled_weights(case):
    sent = [node for node in read_step_graph(sessions.start(case)) if node.op == "_Send"]
    names = [node.attr["tensor_name"].s.decode() for node in sent if "/job:ps" in node.device]
    return len([name for name in names if name.endswith("ReadVariableOp")])


def test_rank_that_infers_needs_no_server():
    case = vary(CASE, gradient_sync="parameter_server", mode=INFER)
    assert sessions.start(case)._session.sess_str == b""


def test_plain_step_has_no_place_for_other_batches():
    plain, twice = (count_variables(vary(CASE, gradient_accumulation=n)) for n in (1, 2))
    assert twice == plain + len(list(sessions.make_definition(CASE).list_parameters()))


def count_variables(case):
    operations = sessions.start(case)._session.graph.get_operations()
    return len([operation for operation in operations if operation.type == "VarHandleOp"])


def test_pipeline_says_what_went_wrong_with_a_sample():
    session = sessions.start(vary(CASE, data="folder"))
    with pytest.raises(DataError, match="sample 3 is broken"):
        list(session.open_pipeline(BrokenSamples(), [[(0, 1), (0, 3), (0, 2), (0, 0)]]))


class BrokenSamples:
    def read_sample(self, index, epoch):
        raise DataError("sample 3 is broken")


def test_allocation_beyond_the_hosts_memory_is_out_of_memory(run):
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        run(tf.random.uniform([2**44]))
    assert is_out_of_memory(caught.value, ADAPTER.OUT_OF_MEMORY)
