"""Whatever is in a file or an option, a command ends in time with a figure or a reason.

20 inputs of each kind in the unit tests, the same ones each time; `make fuzz` tries 2,000 others.
"""

import contextlib
import copy
import io
import json
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import tomli_w
from builders import make_site
from history_runs import add_run, stage_seven
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_logs import list_reference_logs

from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.toml_tables import tomllib

pytestmark = pytest.mark.slow

IN_GATE = 20
EXAMPLES = int(os.environ.get("DLPERF_FUZZ_EXAMPLES", IN_GATE))
# of a processor: a machine with other work takes longer
LIMIT_SECONDS = 10
# without one, as whoever waits for a pipe
LIMIT_WAITING_SECONDS = 60
LIMIT_BYTES = 500 * 2**20
# right, an input to correct, no scheduler, no environment, a case that failed
CODES = (0, 2, 3, 4, 5)

fuzz = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES == IN_GATE,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def slow_inputs_are_errors():
    signal.signal(signal.SIGALRM, _end)
    signal.signal(signal.SIGPROF, _end)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)


def _end(number, frame):
    raise AssertionError(f"took more than {LIMIT_SECONDS} s")


def check(arguments, place):
    """Run a command; a traceback, a hang, 500 MiB or a refusal without a place fails."""
    out, err = io.StringIO(), io.StringIO()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
    signal.alarm(LIMIT_WAITING_SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
    except SystemExit as error:
        code = error.code
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert code in CODES, err.getvalue()
    assert used < LIMIT_BYTES
    if code == 2:
        assert place in err.getvalue()
    return code


# what people and machines write by mistake, and what strangers write on purpose
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from([
        "", " ", "a b", "$(id)", "`id`", "../../x", "/etc/passwd", "-1", "max", "256 -> 128", "->",
        "1n1g", "0n0g", "9999999n1g", "fp32", "pytorch", "resnet50", "worker", "{{ 1 }}", "{%",
        "\x1b[2J", "\u202e", "\ufffe", "=1+1", "x" * 3000, "nan", "1e999", "%A", "a\nb", "\\", "#",
    ]),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, 10**30, -(10**400)]),
    st.floats(),
)
VALUES = st.recursive(
    st.one_of(TEXTS, NUMBERS, st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def damage(draw, data):
    """Draw the data with some values replaced, removed, duplicated or moved."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        place, path = data, []
        while isinstance(place, (dict, list)) and place:
            path.append(place)
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            key = draw(st.sampled_from(list(keys)))
            path.append(key)
            place = place[key]
            if draw(st.integers(0, 4)) == 0:
                break
        if len(path) < 2:
            continue
        holder, key = path[-2], path[-1]
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "list"]))
        if how == "remove":
            del holder[key]
        elif how == "list":
            holder[key] = [holder[key]] * draw(st.integers(0, 3))
        elif how == "add" and isinstance(holder, dict):
            holder[draw(TEXTS)] = draw(VALUES)
        else:
            holder[key] = draw(VALUES)
    return data


def load_shipped(folder):
    return [tomllib.loads(path.read_text()) for path in find_resource_dir(folder).glob("*.toml")]


def damaged_toml(folder):
    """Draw a file that ships with the package, damaged in its values or its text."""
    texts = [path.read_text() for path in find_resource_dir(folder).glob("*.toml")]
    as_values = st.sampled_from(load_shipped(folder)).flatmap(damage).map(dump_toml)
    return st.one_of(as_values, st.sampled_from(texts).flatmap(damaged_text))


def dump_toml(data):
    try:
        return tomli_w.dumps(data)
    except (TypeError, ValueError):
        return "= 1"


@st.composite
def damaged_text(draw, text):
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        piece = draw(st.one_of(TEXTS, st.sampled_from([*'[]{}=,."\n', "'''"])))
        text = text[:start] + piece * draw(st.sampled_from([1, 1, 1, 2, 50])) + text[end:]
    return text


def write(text, name):
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    Path(name).write_bytes(data)
    return name


@fuzz
@given(damaged_toml("matrices"))
def test_matrices(text):
    write(text, "matrix.toml")
    check(["plan", "matrix.toml", "--site", "local"], "matrix.toml")


@fuzz
@given(damaged_toml("site_configs"))
def test_sites(text):
    write(text, "site.toml")
    check(["config", "show", "--site", "./site.toml"], "site.toml")


SITE = make_site().model_dump(mode="json")
KEYS = st.one_of(
    st.sampled_from([*SITE, "env.A", "launcher.name", "environments.pytorch.venv"]), TEXTS
)


@fuzz
@given(KEYS, st.one_of(TEXTS, VALUES.map(repr), st.text(st.characters(), max_size=9)))
def test_assignments(key, value):
    check(["config", "show", "--site", "local", "--set", f"{key}={value}"], "--set")


@fuzz
@given(st.one_of(st.binary(max_size=300), st.integers(0, 10**6).map(lambda n: "[" * n)))
def test_files_of_anything(content):
    write(content, "any.toml")
    check(["plan", "any.toml", "--site", "local"], "any.toml")
    check(["audit", write(content, "any.csv")], "any.csv")


TABLE = (
    "case_id,topology,weak_scaling_efficiency,samples_per_s,nodes,devices_per_node,where,model\n"
)
CELLS = st.one_of(TEXTS, NUMBERS.map(str))
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=8), max_size=6)


@fuzz
@given(ROWS, st.booleans())
def test_tables(rows, is_csv):
    if is_csv:
        text = TABLE + "".join(",".join(row) + "\n" for row in rows)
    else:
        head = "| topology | speedup | samples/s |\n|---|---|---|\n"
        text = head + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    name = "table.csv" if is_csv else "table.md"
    check(["audit", write(text, name)], name)


LOGS = list_reference_logs()


@st.composite
def damaged_logs(draw):
    log = draw(st.sampled_from(LOGS))
    data = log.read_bytes()[: draw(st.integers(1, 60_000))]
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 1, 5, 80, 1000])))
        piece = draw(
            st.one_of(
                st.binary(max_size=9),
                CELLS.map(lambda text: text.encode(errors="replace")),
                st.sampled_from([b"nan", b"-inf", b"0", b"1e400", b"9" * 5000, b"\r", b"\0" * 99]),
            )
        )
        data = data[:start] + piece + data[end:]
    return log.name, data


@fuzz
@given(damaged_logs())
def test_logs(named):
    name, data = named
    check(["import-logs", write(data, name)], name)


@pytest.fixture(scope="module")
def good_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    return add_run(stage_seven(folder), 1, results=folder / "results", repeats=1)


FILES = ("manifest.json", "record.json", "cases.jsonl", "journal.jsonl", "tasks")


@fuzz
@given(st.sampled_from(FILES), st.data())
def test_run_directories(good_run, name, data):
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(good_run, Path(folder) / "run"))
        pattern = {"tasks": "scripts/*.tasks", "record.json": "cases/*/r1/a1/s0/record.json"}
        path = sorted(run.glob(pattern.get(name, f"**/{name}")))[0]
        text = path.read_text()
        if name.endswith(".json") and data.draw(st.booleans()):
            text = json.dumps(data.draw(damage(json.loads(text))))
        else:
            text = data.draw(damaged_text(text))
        write(text, path)
        check(["audit", run], "run")
        check(["status", run], "run")
