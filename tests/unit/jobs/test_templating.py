"""Words of a site in a script: templates over the topology, what bash expands, where they are."""

import subprocess

import pytest
from builders import list_directives, make_matrix_case, make_site, read_launch
from builders import render_script as render
from support.problems import assert_problem

from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.quoting import quote_expanding, quote_words
from dlperf_slurm.launchers import ShellTemplate


def test_directives_are_templates_over_the_topology():
    site = make_site(
        directives=["--gpus={{ world_size }}", "--switches={{ 1 if nodes < 3 else 2 }}", "-C gpu"]
    )
    assert list_directives(render(site))[-3:] == ["--gpus=16", "--switches=1", "-C gpu"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--gpus={{ gpus }}", ("'gpus'", "known: topology, nodes")),
        ("--gpus={{ 1", ("line 1: TemplateSyntaxError",)),
        ("{{ '--array=0-9' }}", ("'--array=0-9': --array", "matrix")),
    ],
)
def test_directive_that_is_none_for_a_topology_is_refused(text, says):
    # what a template makes is known when the topology is
    site = make_site().model_copy(update={"directives": (text,)})
    with pytest.raises(InputError) as caught:
        render(site)
    assert_problem(caught.value, key="directives", says=says)


LABEL = ["--gpus={{ world_size }}", "--label={{ framework }}-{{ topology }}"]
WRAPPER = ["select_gpu", "{{ devices_per_node }}"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"launcher": {"flags": LABEL}}, " --gpus=16 --label=pytorch-2n8g python "),
        (
            {"launcher": {"name": "command", "command": "ibrun -n {{ world_size }} 'a b'"}},
            "exec ibrun -n 16 'a b' python -m ",
        ),
        (
            {"environments": {"pytorch": {"venv": "/v", "wrapper": WRAPPER}}},
            " --kill-on-bad-exit=1 select_gpu 8 python -m ",
        ),
    ],
)
def test_words_of_the_launch_are_templates_over_the_job(values, words):
    assert words in read_launch(render(make_site(**values)))


def test_command_with_an_open_quote_is_refused():
    site = make_site(launcher={"name": "command", "command": "ibrun 'a"})
    with pytest.raises(InputError, match=r"^launcher\.command: .*No closing quotation"):
        render(site)


def test_tasks_are_asked_for_in_all_where_a_site_refuses_those_of_a_node():
    script = render(make_site(task_request="ntasks", cpus_per_rank=4))
    assert {"--ntasks=16", "--cpus-per-task=4"} <= set(list_directives(script))
    assert "ntasks-per-node" not in script


def test_variables_of_ranks_are_set_for_python_alone():
    site = make_site(
        rank_env={"LD_PRELOAD": "/opt/libnccl.so"},
        environments={"pytorch": {"venv": "/v", "rank_env": {"A": "${HOME}/a b"}}},
    )
    script = render(site)
    words = """ env A="${HOME-}"'/a b' LD_PRELOAD=/opt/libnccl.so python -m """
    assert words in read_launch(script)
    assert "export LD_PRELOAD" not in script


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/tmp/${USER}-${JOB}", "/tmp/alice-7"),
        ("${USER}${USER}", "alicealice"),
        ("$${USER}", "${USER}"),
        ("$USER $(x) `x` ${USER:-a}", "$USER $(x) `x` ${USER:-a}"),
        ("<${NOT_SET_ANYWHERE}>", "<>"),
        ("${SPACED}", "a  b *"),
        ("", ""),
        ("it's ${JOB}\n", "it's 7\n"),
    ],
)
def test_names_in_braces_alone_are_expanded(text, value):
    lines = f"set -u; USER=alice JOB=7 SPACED='a  b *'; printf '%s|' {quote_expanding(text)}"
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout == f"{value}|"


def test_word_that_is_not_expanding_stays_as_it_is():
    assert quote_words(["${A}", ShellTemplate("${A}")]) == "'${A}' \"${A-}\""


def test_head_of_a_script_says_what_made_it_in_one_line():
    script = render(make_site(), header="dlperf-slurm 1.0: matrix a\nrm -rf x, site b")
    assert script.splitlines()[1] == "# dlperf-slurm 1.0: matrix a?rm -rf x, site b"


def test_jobs_of_other_images_are_jobs_of_their_own_where_sbatch_has_to_know_them():
    def environment(image):
        return {"container": {"runtime": "shifter", "image": image}}

    site = make_site(environments={"pytorch": environment("a"), "mxnet": environment("b")})
    tasks = [ArrayTask(make_matrix_case(framework=name), 1, 1) for name in ("pytorch", "mxnet")]
    assert len(group_array_tasks(tasks, site, 1001)) == 2
