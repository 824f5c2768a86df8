"""Log formats of the user's own: `--format-file` with TOML, and no line of Python."""

import json
import re
import time
from pathlib import Path
from textwrap import dedent

import pytest
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.toml_tables import parse_toml
from dlperf_slurm.logs import load_format, match_limit

ROOT = Path(__file__).resolve().parents[3]

SETTINGS = ("devices=2", "batch_size_per_device=4", "precision=fp32", "model=m", "framework=jax")
# format, log, measured, samples/s: four lines of which the first is warm-up
FORMATS = {
    "tokens": (
        "lines = [{ pattern = 'step (?P<step>{COUNT}): (?P<tokens_per_s>{NUMBER}) tok/s' }]",
        [f"step {i}: {rate} tok/s" for i, rate in enumerate((1, 1024, 1024, 1024))],
        ("1024 tokens/s", 16.0),
    ),
    "unnumbered": (
        """
        [[lines]]
        pattern = '50 steps took (?P<interval_seconds>{NUMBER}) s'
        steps = 50
        [[lines]]
        pattern = '(?P<end>bye)'
        """,
        [*(f"50 steps took {s} s" for s in (9, 5, 5)), "bye"],
        ("100 ms a step", 80.0),
    ),
    "json": (
        """
        [[lines]]
        json = ''
        where = { phase = "train" }
        columns = { step = "step", milliseconds = "perf.step.ms", loss = "loss" }
        """,
        [
            json.dumps({"phase": phase, "step": i, "perf": {"step.ms": ms}, "loss": 1.5})
            for phase in ("train", "eval")
            for i, ms in enumerate((900, 20, 20, 20))
        ]
        + ["{not json}"],
        ("20 ms a step", 400.0),
    ),
    "csv": (
        """
        lines = [{ csv = ",", columns = { step = "iter", samples_per_s = "img/s" } }]
        window = { is_per_device = true }
        """,
        ["time,iter,img/s", *(f"x,{i},{rate}" for i, rate in enumerate((1, 50.0, 50.0))), "x,3,-"],
        ("50 samples/s per device", 100.0),
    ),
    "cold": (
        """
        lines = [{ pattern = 'epoch (?P<step>{COUNT}) (?P<steps_per_s>{NUMBER})' }]
        window = { warmup_steps = 0 }
        """,
        ["epoch 1 2.0", "epoch 2 2.0"],
        ("2 steps/s", 16.0),
    ),
    "keys": (
        "lines = [{ pairs = 'perf: ' }]",
        ["perf: global=8", *(f"perf: step={i} seconds={s}" for i, s in enumerate((9, 0.5, 0.5)))],
        ("500 ms a step", 16.0),
    ),
}


def _import(capsys, *arguments):
    code = main(["import-logs", "a.log", "--format-file", "own.toml", "--dry-run", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def _write(home, declared, lines):
    (home / "own.toml").write_text(declared, encoding="utf-8")
    (home / "a.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_log_is_read_by_the_user_s_format(home, capsys, name):
    declared, lines, (measured, samples_per_s) = FORMATS[name]
    is_named = "[[" not in declared
    _write(home, f"[formats.{name}]\n{declared}" if is_named else declared, lines)
    settings = [word for text in (*SETTINGS, "sequence_length=64") for word in ("--set", text)]
    code, printed, _ = _import(capsys, "--json", *settings)
    (entry,) = json.loads(printed)
    assert (code, entry["status"], entry["measured"]) == (0, "ok", measured)
    assert entry["samples_per_s"] == pytest.approx(samples_per_s)
    assert entry["format"] == (name if is_named else "own")


def test_report_has_ours_beside_what_the_trainer_prints(home, capsys):
    lines = [
        "x local batch size 4, global batch size 8, a, sequence length 100, total steps 40 (x)",
        *(f"x step: {step}  loss:  6.1  tps: 200  tflops: 30.5" for step in (10, 20, 30)),
        "Training completed",
    ]
    (home / "a.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = ("model=gpt2", "precision=bf16", "flops_per_sample=2e12")
    asked = [word for text in settings for word in ("--set", text)]
    assert main(["import-logs", "a.log", *asked]) == 0
    assert "30.5 TFLOP/s per device" in capsys.readouterr().out
    assert main(["report", "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    # 200 tokens/s of each of 2 devices, 100 tokens of 3 x 2 TFLOP a sample
    assert (case["samples_per_s"], case["tokens_per_s"]) == (4.0, 400.0)
    assert case["tflops_per_device"] == pytest.approx(12.0)
    assert "30.5 TFLOP/s per device" in case["notes"]


def test_log_without_the_line_of_its_end_is_incomplete(home, capsys):
    declared, lines, _ = FORMATS["unnumbered"]
    _write(home, declared, lines[:-1])
    code, printed, _ = _import(capsys, "--json")
    assert (code, json.loads(printed)[0]["status"]) == (5, "incomplete")


def test_user_s_format_outweighs_a_shipped_one(home, capsys):
    declared = (
        "lines = [{ pattern = 'iter (?P<step>{COUNT}): .* time (?P<milliseconds>{NUMBER})ms' }]"
    )
    _write(home, declared, [f"iter {i}: loss 3.0, time 9ms, mfu 1.0%" for i in range(4)])
    _, printed, _ = _import(capsys, "--json")
    assert json.loads(printed)[0]["format"] == "own"


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("lines = [", ("own.toml", "TOML")),
        ("formats = 1", ("own.toml", "[formats.NAME]")),
        ("line = []", ("formats.own", "'line'", "lines")),
        ("lines = [{ pattern = 'x' }]", ("formats.own", "tokens_per_s")),
        (f"lines = [{{ pattern = '{'(' * 5000}{')' * 5000}' }}]", ("formats.own", "lines[0]")),
        ("lines = [{ pattern = 'x{99999999999}' }]", ("formats.own", "lines[0]")),
        ("lines = [{ json = '(?P<json>x)' }]", ("formats.own", "lines[0]", "json")),
        ("lines = [{ pattern = '(?P<a>x)(?P<step>(?P=a))' }]", ("formats.own", "signature")),
    ],
)
def test_mistake_in_the_file_is_named(home, capsys, declared, says):
    _write(home, declared, ["x"])
    code, _, error = _import(capsys)
    assert code == 2
    assert_problem(error, says=says)


def test_pattern_that_backtracks_without_end_is_named(home, monkeypatch, capsys):
    monkeypatch.setattr(match_limit, "MOST_SLOW_SECONDS", 1)
    _write(home, "lines = [{ pattern = 'it (?P<step>(a|a)*)b' }]", ["it " + "a" * 60])
    before = time.process_time()
    code, printed, _ = _import(capsys, "--json", "--format", "own")
    assert time.process_time() - before < 5
    (entry,) = json.loads(printed)
    assert (code, entry["status"], entry["log"]) == (5, "failed", "a.log")
    assert entry["reason"].startswith("formats.own: lines[0]: ")


@pytest.mark.parametrize("line", ["it x", "it 1e9999", "nothing"])
def test_value_that_is_no_number_is_no_figure(home, capsys, line):
    _write(home, "lines = [{ pattern = 'it (?P<step>.*)' }]\nwindow.kind = 'running'", [line])
    code, printed, _ = _import(capsys, "--json", "--format", "own")
    assert (code, json.loads(printed)[0]["status"]) == (5, "failed")


def test_log_of_no_format_says_how_to_add_one(home, capsys):
    _write(home, "lines = [{ pattern = 'it (?P<step>x)' }]", ["hello"])
    code, printed, _ = _import(capsys)
    assert code == 5
    assert_problem(printed, says=("--format-file", "docs/logs.md"))


def test_formats_of_the_documentation_are_valid():
    text = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
    blocks = [dedent(block) for block in re.findall(r"(?:^    .*\n)+", text, re.M)]
    tables = [parse_toml(re.sub(r"^#.*\n", "", b)) for b in blocks if "lines" in b]
    formats = {name: f for t in tables for name, f in t.get("formats", {"mine": t}).items()}
    assert set(formats) >= {"mine", "llm", "fifty", "events", "sheet", "total"}
    for name in formats:
        load_format(name, formats)
