"""TensorFlow 2's BERT: DLPerf's figure."""

from log_excerpts import publish


def test_dlperf_s_figure_is_from_line_20_to_line_120():
    times = [30 + step * 0.25 + (step % 5) / 100 for step in range(120)]
    lines = [
        f"I0826 15:{int(time // 60):02d}:{time % 60:09.6f} 139 model_training_utils.py:518] "
        f"Train Step: {step + 1}/120  / loss = 9.0"
        for step, time in enumerate(times)
    ]
    known = {"devices": 8, "batch_size_per_device": 32}
    expected = round(256 * 100 / (times[119] - times[19]), 2)
    assert publish("tensorflow_models_bert", lines, **known) == expected
