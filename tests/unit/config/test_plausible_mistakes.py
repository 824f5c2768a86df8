"""What whoever writes a site file plausibly gets wrong is answered with line, key and remedy."""

from pathlib import Path

import pytest

from dlperf_slurm.config.site import load_site
from dlperf_slurm.errors import InputError


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        ("queue = 'gpu'", "queue", "unknown key. Did you mean 'partition'? Known: account, "),
        ("project = 'p42'", "project", "Did you mean 'account'?"),
        ("gres = 'gpu:a100:8'", "gres", "Did you mean 'gpu_request'?"),
        ("gpu_type = 'gpu:a100'", "gpu_type", "write the type alone, as in 'a100'"),
        ("gpus_per_node = 8", "gpus_per_node", "Did you mean 'max_devices_per_node'?"),
        ("nodes = 4", "nodes", "Did you mean 'max_nodes'?"),
        ("walltime = 30", "walltime", "Did you mean 'time_limit_minutes'?"),
        ("time_limit_minutes = 5", "time_limit_minutes", "not a table; write { default = 30 }"),
        (
            "time_limit_minutes.defualt = 5",
            "time_limit_minutes.defualt",
            "as in '2n8g'. Did you mean 'default'?",
        ),
        ("time_limit_minutes.default = 00:05:00", "time_limit_minutes.default", "00:05:00 is not"),
        ("max_jobs = 4", "max_jobs", "Did you mean 'max_submitted'?"),
        ("max_submitted = '4'", "max_submitted", "not an integer; without quotes it is: 4"),
        ("exclusive = 'true'", "exclusive", "without quotes it is: true"),
        ("launcher.mpi = false", "launcher.mpi", 'in quotes it is one: "false"'),
        ("launcher.name = 'mpiexec'", "launcher.name", "Did you mean 'mpirun'?"),
        ("[datasets.x]\nscratch = '/tmp'", "datasets.x.scratch", "Did you mean 'stage_to'?"),
    ],
)
def test_mistake_has_its_line_its_key_and_its_remedy(text, key, remedy):
    Path("site.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_site("site.toml", None, [])
    answer = str(caught.value)
    assert answer.startswith(f"site.toml:{text.count(chr(10)) + 1}: {key}: ")
    assert remedy in answer


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("account = proj42", "write a text in quotes"),
        ("time_limit = 90min", "write a text in quotes"),
        ("memory = 64G", "write a text in quotes"),
        ("umask = 022", 'write a number that begins with 0 in quotes, as in "022"'),
        ("exclusive = True", "write true and false in small letters"),
        ("device: cuda", "write KEY = VALUE"),
        ("scheduler = 'local'", "the key or table is there twice"),
    ],
)
def test_line_that_is_no_toml_is_shown_with_what_was_probably_meant(line, remedy):
    Path("site.toml").write_text(f"scheduler = 'slurm'\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^site\.toml: not TOML: .*at line 2") as caught:
        load_site("site.toml", None, [])
    assert str(caught.value).endswith(f": {line}; {remedy}")
