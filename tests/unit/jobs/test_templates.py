"""A site's own templates: what is wrong with them is told before anything is made of them."""

import pytest
from builders import give_to_another_user, make_axes, make_group, make_site, write_matrix
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.overrides import get_job_kind
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.render import render_scripts
from dlperf_slurm.jobs.templates import check_templates

NAME = "cluster.sbatch.j2"
KINDS = [get_job_kind(make_axes())]


def write(home, text, name=NAME):
    path = home / "own" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def list_problems(home, name=NAME):
    with pytest.raises(InputError) as raised:
        check_templates(make_site(template=str(home / "own" / name)).resolve_each(KINDS))
    return str(raised.value).splitlines()


@pytest.mark.parametrize("template", ["/", "..", "/etc"])
def test_folder_is_no_template(template):
    with pytest.raises(InputError, match="template does not exist"):
        check_templates(make_site(template=template).resolve_each(KINDS))


@pytest.mark.parametrize("name", ["base.sbatch.j2", "frameworks/pytorch.sh.j2"])
def test_template_of_another_user_is_not_found_by_its_name(home, monkeypatch, name):
    """In a folder that others may write to, or by a link of theirs."""
    own = write(home, '{% extends "base.sbatch.j2" %}')
    path = write(home, '{% extends "frameworks/framework.sh.j2" %}' if "/" in name else "", name)
    give_to_another_user(monkeypatch, path)
    (line,) = list_problems(home)
    assert_problem(line, file=str(path), says=("4242",))
    give_to_another_user(monkeypatch, own)
    if "/" in name:
        path.unlink()
        # the template that the site names is the user's choice
        check_templates(make_site(template=str(own)).resolve_each(KINDS))


@pytest.mark.parametrize(
    ("text", "says"),
    [("{% extends 'gone.j2' %}\n", ": extends 'gone.j2'"), ("#!/bin/bash\n{% if %}\n", ":2: ")],
)
def test_mistake_is_told_with_its_place(home, text, says):
    path = write(home, text)
    assert list_problems(home)[0].startswith(f"{path}{says}")


def test_block_within_a_known_block_is_new(home):
    inner = "{% block of_our_own %}true{% endblock %}"
    text = '{% extends "base.sbatch.j2" %}{% block prologue %}' + inner + "{% endblock %}"
    check_templates(make_site(template=str(write(home, text))).resolve_each(KINDS))


def test_template_of_a_framework_is_checked_beside_it(home):
    write(home, '{% extends "base.sbatch.j2" %}')
    text = '{% extends "frameworks/framework.sh.j2" %}{% block enviroment %}{% endblock %}'
    path = write(home, text, "frameworks/pytorch.sh.j2")
    (line,) = list_problems(home)
    assert line.startswith(f"{path}:1: ")
    assert "Did you mean 'environment'?" in line


def test_ring_of_templates_is_told_by_plan_and_by_rendering(home):
    path = write(home, "{% extends 'b.j2' %}")
    write(home, f"{{% extends '{NAME}' %}}", "b.j2")
    (line,) = list_problems(home)
    assert line.endswith(f": {NAME} extends b.j2 extends {NAME}")
    site = make_site(template=str(path))
    with pytest.raises(InputError, match="itself"):
        render_scripts([make_group(site)], site, "run", home)


@pytest.mark.parametrize("name", ["base.sbatch.j2", "frameworks/pytorch.sh.j2"])
def test_template_that_extends_its_namesake_extends_the_shipped_one(home, name):
    path = write(home, '{% extends "base.sbatch.j2" %}', "base.sbatch.j2")
    block = "environment" if "pytorch" in name else "prologue"
    line = "  echo this site\n"
    write(home, f'{{% extends "{name}" %}}{{% block {block} %}}\n{line}{{% endblock %}}\n', name)
    site = make_site(template=str(path))
    check_templates(site.resolve_each(KINDS))
    script = render_scripts([make_group(site)], site, "run", home)["scripts/1n1g.sbatch"]
    assert line in script
    assert script.startswith("#!/bin/bash\n")


def test_plan_tells_before_anything_is_submitted(home, capsys):
    matrix = write_matrix()
    (home / "site.toml").write_text('scheduler = "local"\ndevice = "cpu"\ntemplate = "t/gone.j2"\n')
    assert main(["plan", str(matrix), "--site", "site.toml"]) == 2
    assert f"{home}/t/gone.j2: " in capsys.readouterr().err
