"""[[override]] of site files: which jobs they are for, which layer wins, what is refused."""

from pathlib import Path

import pytest
import tomli_w
from builders import make_site, write_matrix
from support.problems import assert_problem

from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site, load_site, read_frozen_site
from dlperf_slurm.config.toml_tables import read_toml
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.failed_nodes import exclude_nodes

SMALL = """\
partition = "standard"
env.A = "1"
[launcher]
flags = ["--cpu-bind=none"]
[[override]]
when = { nodes = 1, devices_per_node = "<8" }
partition = "small"
env.B = "2"
launcher.mpi = "none"
"""


def write_site(text: str, name: str = "site.toml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def make_kind(topology="1n1g", framework="pytorch", gradient_sync="native") -> JobKind:
    return JobKind(framework, gradient_sync, parse_topology(topology))


def settle(text, kind, assignments=()) -> Site:
    return load_site(write_site(text), None, assignments).site.resolve(kind)


def test_tables_of_an_override_are_merged_key_by_key():
    site = settle(SMALL, make_kind("1n1g"))
    assert (site.env, site.override) == ({"A": "1", "B": "2"}, ())
    assert (site.launcher.mpi, site.launcher.flags) == ("none", ("--cpu-bind=none",))


def test_environments_of_an_override_are_merged_key_by_key_and_the_later_one_wins():
    overrides = [
        {"when": {"nodes": n}, "qos": n, "environments": {"pytorch": {"env": {"B": n}}}}
        for n in (">=1", ">=2")
    ]
    environments = {"pytorch": {"venv": "/a", "env": {"A": "1"}}}
    site = make_site(environments=environments, override=overrides)
    for topology, value in (("1n1g", ">=1"), ("2n1g", ">=2")):
        resolved = site.resolve(make_kind(topology))
        chosen = resolved.find_environment("pytorch")
        assert (chosen.venv, chosen.env) == ("/a", {"A": "1", "B": value})
        assert resolved.qos == value


@pytest.mark.parametrize(
    ("when", "topologies"),
    [
        ({"topology": ["1n1g", "2n8g"]}, ["1n1g", "2n8g"]),
        ({"nodes": 1, "devices_per_node": "<8"}, ["1n1g"]),
        ({"nodes": ["<2", 2]}, ["1n1g", "1n8g", "2n8g"]),
        ({"world_size": [8, ">16"]}, ["1n8g", "4n8g"]),
        ({"devices_per_node": [1, 8], "nodes": [2, 3]}, ["2n8g"]),
        ({"framework": ["jax", "pytorch"], "nodes": 1}, ["1n1g", "1n8g"]),
        ({"gradient_sync": ["horovod", "native"], "world_size": 1}, ["1n1g"]),
    ],
)
def test_condition_holds_for_any_of_its_values_and_for_all_of_its_keys(when, topologies):
    site = make_site(override=[{"when": when, "qos": "other"}])
    found = [
        topology
        for topology in ("1n1g", "1n8g", "2n8g", "4n8g")
        if site.resolve(make_kind(topology)).qos == "other"
    ]
    assert found == topologies


def test_override_sets_a_value_to_0_and_to_false():
    site = make_site(
        exclusive=True,
        memory_mib_per_node=64,
        override=[{"when": {"nodes": 1}, "exclusive": False, "memory_mib_per_node": 0}],
    )
    settled = [site.resolve(make_kind(topology)) for topology in ("1n1g", "2n1g")]
    assert [(s.exclusive, s.memory_mib_per_node) for s in settled] == [(False, 0), (True, 64)]


def test_later_layer_wins_over_an_override_key_by_key():
    folder = Path(".config/dlperf-slurm")
    folder.mkdir(parents=True)
    write_site("partition = 'mine'\n[launcher]\nmpi = 'pmi2'\n", str(folder / "config.toml"))
    site = settle(SMALL, make_kind("1n1g"), ["env.B=set"])
    assert (site.partition, site.launcher.mpi, site.env["B"]) == ("mine", "pmi2", "set")


def test_override_of_a_later_layer_is_added_to_those_before():
    matrix = read_toml(write_matrix("[[slurm.override]]\nwhen.nodes = 1\nqos = 'high'\n"))
    site = load_site(write_site(SMALL), matrix, []).site.resolve(make_kind("1n1g"))
    assert (site.partition, site.qos) == ("small", "high")


def test_site_that_a_run_keeps_settles_as_the_one_it_was_staged_with(home):
    site = load_site(write_site(SMALL), None, []).site
    text = tomli_w.dumps(site.model_dump(mode="json", exclude_none=True))
    again = read_frozen_site(home / write_site(text, "kept.toml"))
    for topology in ("1n1g", "1n8g"):
        assert again.resolve(make_kind(topology)) == site.resolve(make_kind(topology))


def test_node_that_failed_is_left_out_where_an_override_has_directives_of_its_own():
    site = make_site(
        directives="--requeue",
        override=[
            {"when": {"nodes": 2}, "directives": ["--exclude=a", "--hint=nomultithread"]},
            {"when": {"nodes": 3}, "qos": "high"},
        ],
    )
    without = exclude_nodes(site, ["b"], 1)
    assert [without.resolve(make_kind(t)).directives for t in ("1n1g", "2n1g", "3n1g")] == [
        ("--requeue", "--exclude=b"),
        ("--hint=nomultithread", "--exclude=a,b"),
        ("--requeue", "--exclude=b"),
    ]


def test_mistakes_of_overrides_are_named_with_their_lines():
    text = "[[override]]\nwhen.nodes = '~4'\nmax_nodes = 3\n[[override]]\nqos = 'x'\n"
    with pytest.raises(InputError) as caught:
        load_site(write_site(text), None, [])
    expected = [
        (2, "override[0].when.nodes", ("'~4'", ">=")),
        (3, "override[0].max_nodes", ("unknown key",)),
        (4, "override[1].when", ("required",)),
    ]
    mistakes = str(caught.value).splitlines()
    assert len(mistakes) == len(expected)
    for mistake, (line, key, says) in zip(mistakes, expected):
        assert_problem(mistake, file="site.toml", line=line, key=key, says=says)


def test_set_takes_no_override_in_which_a_secret_could_stand():
    text = "override=[{when={nodes=1}, env={TOKEN='x'}}]"
    with pytest.raises(InputError) as caught:
        load_site(write_site(""), None, [text])
    assert_problem(caught.value, key="--set override", says=("files",))
