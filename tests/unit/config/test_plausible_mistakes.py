"""What whoever writes a site file plausibly gets wrong is answered with line, key and remedy."""

from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.config.site import load_site
from dlperf_slurm.errors import InputError
from dlperf_slurm.launchers import LAUNCHERS


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("queue = 'gpu'", "queue", ("unknown key", "mean 'partition'", "account")),
        ("project = 'p42'", "project", ("mean 'account'",)),
        ("gres = 'gpu:a100:8'", "gres", ("mean 'gpu_request'",)),
        ("gpu_type = 'gpu:a100'", "gpu_type", ("such as 'a100'",)),
        ("gpus_per_node = 8", "gpus_per_node", ("mean 'max_devices_per_node'",)),
        ("nodes = 4", "nodes", ("mean 'max_nodes'",)),
        ("walltime = 30", "walltime", ("mean 'time_limit_minutes'",)),
        ("time_limit_minutes = 5", "time_limit_minutes", ("table", "default = 30")),
        (
            "time_limit_minutes.defualt = 5",
            "time_limit_minutes.defualt",
            ("as in '2n8g'", "mean 'default'"),
        ),
        (
            "time_limit_minutes.default = 00:05:00",
            "time_limit_minutes.default",
            ("00:05:00", "integer"),
        ),
        ("max_jobs = 4", "max_jobs", ("mean 'max_submitted'",)),
        ("max_submitted = '4'", "max_submitted", ("integer", "quotes", ": 4")),
        ("exclusive = 'true'", "exclusive", ("false", "quotes", ": true")),
        ("launcher.mpi = false", "launcher.mpi", ("not a string", '"false"')),
        (
            "launcher.name = 'mpiexec'",
            *("launcher.name", (f"known: {', '.join(sorted(LAUNCHERS))}", "mean 'mpirun'")),
        ),
        ("[datasets.x]\nscratch = '/tmp'", "datasets.x.scratch", ("mean 'stage_to'",)),
    ],
)
def test_mistake_has_its_line_its_key_and_its_remedy(text, key, says):
    Path("site.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_site("site.toml", None, [])
    line = text.count("\n") + 1
    assert_problem(caught.value, file="site.toml", line=line, key=key, says=says)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("account = proj42", ("text in quotes",)),
        ("time_limit = 90min", ("text in quotes",)),
        ("memory = 64G", ("text in quotes",)),
        ("umask = 022", ('put it in quotes: "022"',)),
        ("exclusive = True", ("true or false",)),
        ("device: cuda", ("KEY = VALUE",)),
        ("scheduler = 'local'", ("twice",)),
    ],
)
def test_line_that_is_no_toml_is_shown_with_what_was_probably_meant(line, says):
    Path("site.toml").write_text(f"scheduler = 'slurm'\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^site\.toml: not valid TOML: .*at line 2") as caught:
        load_site("site.toml", None, [])
    assert_problem(caught.value, file="site.toml", key="not valid TOML", says=(line, *says))
