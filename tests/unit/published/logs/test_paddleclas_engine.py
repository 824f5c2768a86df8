"""PaddleClas since 2.2: means since an epoch's reset, what the settings tell."""

from log_excerpts import list_excerpt, read_one


def _iteration(epoch, index, cost, rate, epochs=1):
    return (
        f"[2022/04/04 17:51:12] root INFO: [Train][Epoch {epoch}/{epochs}][Iter: {index}/60]"
        f"lr: 0.1, CELoss: 4.6, loss: 4.6, batch_cost: {cost:.5f}s, reader_cost: 0.1, "
        f"ips: {rate:.5f} images/sec, eta: 0:08:23"
    )


def test_costs_are_means_since_the_sixth_iteration():
    lines = [
        _iteration(1, 0, 9.0, 32 / 9),
        _iteration(1, 20, 0.4, 80),
        _iteration(1, 40, 0.5, 64),
        "[2022/04/04 17:51:16] root INFO: [Train][Epoch 1/1][Avg]CELoss: 4.64772, loss: 4.64772",
    ]
    reading = read_one("paddleclas_engine", lines)
    (window,) = reading.windows
    assert reading.problem == ""
    assert window.steps == 20
    assert abs(window.seconds - (36 * 0.5 - 16 * 0.4)) < 1e-9
    assert reading.identity.batch_size_per_device == 32


def test_identity_comes_from_the_printed_settings():
    identity = read_one(
        "paddleclas_engine", list_excerpt("paddleclas_engine/one_rank.log")
    ).identity
    assert (identity.model, identity.precision) == ("resnet50", "fp32")
    assert identity.versions == {"paddle": "2.2.2"}
