"""Somebody else's script in the ranks' place: what runs, what its log is made of, how it ends."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import IMPORT_DIR, make_case, make_group, make_matrix_case, make_site, write_matrix
from support.attempts import is_running
from support.cases import vary
from support.problems import assert_problem
from support.tool import await_that

from dlperf_slurm.cli import main
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import Record, find_record_problem
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs import plan
from dlperf_slurm.jobs.grouping import ArrayTask
from dlperf_slurm.jobs.render import render_scripts
from dlperf_slurm.jobs.sandbox import begin_all
from dlperf_slurm.jobs.task_tables import render_external_script
from dlperf_slurm.jobs.unsupported import explain_unsupported
from dlperf_slurm.matrix.expand import MatrixCase, expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.matrix.tables import ScriptTable
from dlperf_slurm.worker import external_script
from dlperf_slurm.worker.processes import TIME_LIMIT_SIGNAL

LOG = Path(__file__).parents[1] / "published" / "logs" / "tf_cnn_benchmarks" / "one_process.log"
MATRIX = """\
[model]
name = "resnet50"
width = 16
[axes]
framework = "tensorflow1"
topology = "1n2g"
batch_size_per_device = 64
script = ["worker", "official"]
[scripts.official]
format = "tf_cnn_benchmarks"
command = "python train.py --batch_size={{ batch_size_per_device }} --gpus={{ world_size }}"
env = { NAME = "a b'c" }
"""


def make_script_case(**changes: object) -> MatrixCase:
    table = ScriptTable(command="true", format="tf_cnn_benchmarks")
    return make_matrix_case(
        framework="tensorflow1", script="official", script_table=table, **changes
    )


def make_attempt(folder: Path, script: str, **changes: object) -> Path:
    """Make an attempt at the log's case, with this script."""
    asked = {
        "framework": "tensorflow1",
        "nodes": 1,
        "devices_per_node": 2,
        "batch_size_per_device": 64,
        "log_format": "tf_cnn_benchmarks",
        "gradient_sync": "parameter_server",
        **changes,
    }
    write_json(folder / "case.json", make_case(**asked))
    (folder / "script.sh").write_text(script, encoding="utf-8")
    return folder


def run_script(attempt_dir: Path) -> Record:
    """Run the script of an attempt in this process; return its record."""
    previous = [signal.getsignal(number) for number in (signal.SIGTERM, TIME_LIMIT_SIGNAL)]
    try:
        code = external_script.run_script(attempt_dir, ["bash"])
    finally:
        for number, handler in zip((signal.SIGTERM, TIME_LIMIT_SIGNAL), previous):
            signal.signal(number, handler)
    record = read_json(attempt_dir / "record.json", Record)
    assert (code == 0) == (record.status == "ok")
    return record


@pytest.mark.parametrize("stream", [1, 2])
def test_log_of_the_script_becomes_the_record(tmp_path, stream):
    record = run_script(make_attempt(tmp_path, f"pwd > place; cat {LOG} >&{stream}"))
    assert (record.status, find_record_problem(record)) == ("ok", "")
    assert record.samples_per_s == pytest.approx(611.87)
    assert record.publisher_samples_per_s == 611.87
    assert (tmp_path / "log").read_bytes() == LOG.read_bytes()
    assert (tmp_path / "place").read_text() == f"{tmp_path}\n"


PRINT = "echo Epoch: [0][$i/900] Time 0.5 '(0.5)' Data 0.1 '(0.1)' Loss 7 '(7)'"
STEPS = f"for i in $(seq 0 40); do {PRINT}; done"


@pytest.mark.parametrize(
    ("end", "measured_steps", "status"),
    [("", 10, "ok"), ("", 100, "failed"), ("; sleep 1000", 10, "ok")],
)
def test_script_without_an_end_counts_if_it_made_the_measured_steps_and_is_ended(
    tmp_path, monkeypatch, end, measured_steps, status
):
    monkeypatch.setattr("dlperf_slurm.worker.processes.POLL_SECONDS", 0.1)
    asked = {"framework": "pytorch", "log_format": "pytorch_examples"}
    script = f"{STEPS}; echo $$ > pid{end}"
    record = run_script(make_attempt(tmp_path, script, measured_steps=measured_steps, **asked))
    assert record.status == status
    assert "of 900" in record.reason
    assert not is_running(int((tmp_path / "pid").read_text()))
    if status == "ok":
        assert record.samples_per_s == pytest.approx(128 / 0.5)
        assert record.case.measured_steps == measured_steps


@pytest.mark.not_in_check
@pytest.mark.parametrize(
    ("script", "changes", "reason"),
    [
        (f"cat {LOG}; exit 3", {}, "exit code 3"),
        (f"head -20 {LOG}", {}, "the log"),
        (f"cat {LOG}", {"batch_size_per_device": 32}, "batch_size_per_device is 64 in the log"),
        (f"cat {LOG}", {"model": "bert"}, "model is resnet50 in the log"),
        (f"cat {LOG}", {"gradient_sync": "native"}, "gradient_sync is parameter_server in the log"),
        (f"sed s/training/forward-only/ {LOG}", {}, "mode is infer in the log"),
        (f"cat {LOG} {LOG}", {}, "2 runs"),
        (f"sed 's/ (synthetic)//' {LOG}", {}, "data is folder in the log"),
        ("python3 -c 'import no_such'", {}, "ModuleNotFoundError: No module named 'no_such'"),
        ("echo no license; exit 4", {}, "exit code 4, after the line 'no license'"),
        ("echo RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", {}, "out of memory"),
    ],
)
def test_log_that_is_not_of_the_case_fails_with_the_reason(tmp_path, script, changes, reason):
    record = run_script(make_attempt(tmp_path, script, **changes))
    assert record.status in ("failed", "oom")
    assert reason in record.reason
    assert record.case == read_json(tmp_path / "case.json", Case)


@pytest.mark.parametrize(
    "parts", ["", "<mig_device><gpu_instance_id>1</gpu_instance_id></mig_device>"]
)
def test_settings_are_of_the_log_and_devices_of_the_node(tmp_path, monkeypatch, parts):
    folder = tmp_path / "bert-4n8g-bs8-bf16-eval"
    folder.mkdir()
    gpus = f"<product_name>NVIDIA H200</product_name><mig_devices>{parts}</mig_devices>"
    query = tmp_path / "nvidia-smi"
    query.write_text(f"#!/bin/sh\necho '<nvidia_smi_log><gpu>{gpus}</gpu></nvidia_smi_log>'\n")
    query.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    asked = {"framework": "pytorch", "log_format": "pytorch_examples", "device": "cuda"}
    record = run_script(make_attempt(folder, STEPS, measured_steps=10, **asked))
    device_name = "NVIDIA H200 MIG" if parts else "NVIDIA H200"
    assert (record.status, record.ranks[0].device_name) == ("ok", device_name)


def test_script_that_is_told_to_end_leaves_no_process(tmp_path):
    attempt_dir = make_attempt(tmp_path, "sleep 1000 & echo $! > pid.partial; mv pid.partial pid\n"
                               "sleep 1000")  # fmt: skip
    worker = [sys.executable, "-m", "dlperf_slurm.worker", "script", str(attempt_dir), "--", "bash"]
    process = subprocess.Popen(worker, env={**os.environ, "PYTHONPATH": IMPORT_DIR})
    await_that((tmp_path / "pid").exists, "the script runs")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert not (tmp_path / "record.json").exists()


def test_command_is_a_template_over_the_case():
    cases = expand_matrix(read_matrix(write_matrix(MATRIX))).cases
    (case,) = (case for case in cases if case.script_table)
    assert case.case_id == "tensorflow1-resnet50-1n2g-bs64-fp32-official"
    assert render_external_script(case, case.script_table, repeat=1, device="cpu") == (
        "#!/bin/bash\n"
        """export NAME='a b'"'"'c'\n"""
        "python train.py --batch_size=64 --gpus=2\n"
    )


def test_script_with_a_model_of_its_own_needs_no_other():
    text = MATRIX.partition("[axes]")[2].replace('["worker", "official"]', '"official"')
    model = (
        'model = "gpt2-124m"\nunit = "sequences"\ntokens_per_sample = 512\nflops_per_sample = 1e11'
    )
    own = "[axes]" + text.replace("[scripts.official]", f"[scripts.official]\n{model}")
    (case,) = expand_matrix(read_matrix(write_matrix(own))).cases
    assert case.case_id == "tensorflow1-gpt2-124m-1n2g-bs64-fp32-official"
    assert (case.model_parameters, case.dataset) == ({}, "")
    made = plan.make_case(case, make_site(), "run", 1, 1)
    assert (made.tokens_per_sample, made.flops_per_sample) == (512, 1e11)
    assert "--batch_size=64" in render_external_script(case, case.script_table, 1, "cpu")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("{{ parameters.width }} {{ parameters.image_size }} {{ seed + repeat }}", "16 224 4"),
        (
            "{% for n in range(nodes) %}{% for d in range(devices_per_node) %}{{ n }}.{{ d }} "
            "{% endfor %}{% endfor %}"
            "{% if precision.startswith('fp') %}{{ precision | replace('fp', '') | int * 2 }}"
            "{% endif %} {{ parameters.stage_blocks | join(',') }} {{ model | upper | sh }}",
            "0.0 64 3,4,6,3 RESNET50",
        ),
    ],
)
def test_command_may_loop_and_choose(command, text):
    case = make_script_case(model_parameters={"width": 16})
    script = ScriptTable(command=command, format="tf_cnn_benchmarks")
    assert render_external_script(case, script, 3, device="cpu").splitlines()[1] == text


def test_command_that_a_case_cannot_have_is_told_with_its_line_before_anything_is_made(capsys):
    write_matrix(MATRIX.replace("{{ world_size }}", "{{ 8 // (world_size - 2) }}"))
    assert main(["plan", "matrix.toml", "--site", "local"]) == 2
    assert main(["render", "matrix.toml", "--site", "local"]) == 2
    assert not Path("results").exists()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    key = "scripts.official.command: tensorflow1-resnet50-1n2g-bs64-fp32-official"
    for line in lines:
        assert_problem(line, file="matrix.toml", line=11, key=key, says=("ZeroDivisionError",))


# no template of a command, or one that does harm
REFUSED_COMMANDS = {
    "{{ batch }}": "'batch' is undefined; known: framework",
    "x\n{{ nodes": "line 2: TemplateSyntaxError: ",
    "{{ cycler.__init__.__globals__.os.system('touch pwned') }}": "may call only",
    "{{ ''['__class__'] }}": "access to attribute '__class__' of 'str' object is unsafe",
    "{% for i in range(10**12) %}{% endfor %}": "range: more than 10000 items",
    "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}": "too much work",
    "{{ 'x' * 10**10 }}": "* needs numbers, not 'x'",
    "{{ 10**10**9**99 }}": "the result has more than 4096 bits",
    # each is short, and took minutes or gigabytes: a loop of operations that are linear in a text
    "{% for i in range(900) %}{% for j in range(900) %}{% if range(9999)|sum < 0 %}x{% endif %}"
    "{% endfor %}{% endfor %}": "too much work",
    "{% for i in range(900) %}{% for j in range(900) %}{% if 'x' in range(9999) %}x{% endif %}"
    "{% endfor %}{% endfor %}": "too much work",
    "{% for i in range(9) %}{% if range(9999)|join|replace(range(9999)|join,'') %}x{% endif %}"
    "{% endfor %}": "too much work",
    "{% for i in range(9) %}{% if (range(9999)|join).split(range(9999)|join) %}x{% endif %}"
    "{% endfor %}": "too much work",
    "{% for i in range(9) %}{% if (range(9999)|join).split(sep=range(9999)|join) %}x{% endif %}"
    "{% endfor %}": "too much work",
    "{% for a in [range(9999)|join('x' ~ range(30)|join)] %}"
    + "".join(f"{{% for {b} in [{a}~{a}~{a}~{a}~{a}] %}}" for a, b in zip("abcdefg", "bcdefgh"))
    + "{% if h == '' %}x{% endif %}"
    + "{% endfor %}" * 8: "too much work",
    "{% for a in range(999) %}{% if [[1], [1]]|sum(start=[]) %}{% endif %}{% endfor %}": "needs",
    "{{ ('9' ~ range(999)|join)|int }}": "int: the text has more",
    "{{ '%1000000000d' % 1 }}": "% needs numbers, not '%1000000000d'",
    "{{ range(9999) | join(framework | replace('t', range(9999) | join)) }}": "filter exceeds",
    "{% set a = 'x' ~ framework %}{{ a }}": "assign cannot stand in a command; allowed:",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "macro cannot stand in a command",
    "{% include '/etc/passwd' %}": "include cannot stand in a command",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}": "nested too deeply",
    "x" * 30_000: "more than 20000 characters",
}


@pytest.mark.parametrize("command", REFUSED_COMMANDS, ids=range(len(REFUSED_COMMANDS)))
def test_command_that_runs_code_or_has_no_end_is_refused_at_once(command, home):
    script = ScriptTable(command=command, format="tf_cnn_benchmarks")
    started = time.monotonic()
    with pytest.raises(InputError) as caught:
        render_external_script(make_script_case(), script, repeat=1, device="cpu")
    message = str(caught.value)
    assert message.startswith("scripts.official.command: ")
    assert REFUSED_COMMANDS[command] in message
    assert time.monotonic() - started < 5
    assert not (home / "pwned").exists()


def count_rendered(command):
    """Count the array tasks of a matrix, of 1,000, for which a command is rendered."""
    script = ScriptTable(command=command, format="tf_cnn_benchmarks")
    begin_all()
    for repeat in range(1000):
        try:
            render_external_script(make_script_case(), script, repeat, "cpu")
        except InputError:
            return repeat
    return 1000


@pytest.mark.integration
def test_work_of_all_cases_together_is_bounded():
    """A command may do much work, or be of many cases, but not both."""
    assert 100 < count_rendered("{% for n in range(9000) %}{{ n }}{% endfor %}") < 400
    assert count_rendered("{{ framework }}") == 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ frameworks[0].__class__ }}", "access to attribute '__class__' of 'FrameworkScript'"),
        ("{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}", "in a loop"),
        ("{{ '{:9999999999}'.format(1) }}", "access to attribute 'format' of 'str'"),
        ("{{ (1).to_bytes(10**10, 'big') }}", "access to attribute 'to_bytes' of 'int'"),
        ("{% set x = namespace() %}", "'namespace' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ 1 | nofilter }}", "No filter named 'nofilter'"),
    ],
)
def test_template_of_a_site_runs_no_code_on_the_login_node(tmp_path, text, expected):
    """A matrix may name one too."""
    template = tmp_path / "own.sbatch.j2"
    template.write_text(text, encoding="utf-8")
    site = make_site(template=str(template))
    with pytest.raises(InputError, match=f"^own.sbatch.j2: .*{re.escape(expected)}"):
        render_scripts([make_group(site)], site, "run", tmp_path)


@pytest.mark.parametrize(
    ("launch", "starter", "launcher"),
    [("single", "script", "bash"), ("per-rank", "script_ranks", "srun")],
)
def test_script_starts_once_or_on_all_ranks(launch, starter, launcher, tmp_path):
    site = make_site()
    script = ScriptTable(command="true", format="tf_cnn_benchmarks", launch=launch)
    task = ArrayTask(vary(make_script_case(), script_table=script), 1, 1)
    group = dataclasses.replace(make_group(site, repeats=1), array_tasks=(task,))
    files = render_scripts([group], site, "run", tmp_path)
    assert files["scripts/1n1g.tasks"].split("\t")[2:] == [starter, "-", "1", "0", "0\n"]
    assert files["scripts/external_scripts"] == "#!/bin/bash\ntrue\n\0"
    (line,) = (x for x in files["scripts/1n1g.sbatch"].splitlines() if "worker script" in x)
    assert f'"$attempt_dir" -- {launcher}' in line


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mode": "infer"}, "script 'official' .*use mode 'train'"),
        ({"batch_size_per_device": "max"}, "script 'official' .*; 'max' .*script 'worker'"),
        # the adapter has no such compiler, the script may
        ({"compiler": "tensorrt"}, "^$"),
    ],
)
def test_script_is_refused_what_only_our_worker_can(changes, reason):
    case, site = make_script_case(**changes), make_site()
    found = explain_unsupported(case, plan.make_case(case, site, "run", 1, 1), site)
    assert re.match(reason, found or "")
