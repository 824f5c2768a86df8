"""Values of a site file that are Jinja2 templates -> their text for one job.

An example is `--nodes={{ nodes }}`, whose `nodes` comes from the topology of the job.
"""

from collections.abc import Mapping, Sequence

from dlperf_slurm.config.job_settings import check_directive
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.launchers import ShellTemplate

JobValues = Mapping[str, object]


def list_shape_values(site: Site, topology: Topology) -> dict[str, object]:
    """Return the values that `directives` may use, such as `nodes` and `world_size`, by name."""
    return {
        "topology": str(topology),
        "nodes": topology.nodes,
        "devices_per_node": topology.devices_per_node,
        "world_size": topology.world_size,
        "cpus_per_rank": site.cpus_per_rank,
    }


def list_job_values(site: Site, kind: JobKind) -> dict[str, object]:
    """Return the values that settings of the launch command may use, by name.

    Those of `list_shape_values`, and `framework` and `gradient_sync`.
    """
    shape = list_shape_values(site, kind.topology)
    return {**shape, "framework": kind.framework, "gradient_sync": kind.gradient_sync}


def render_word(text: str, values: JobValues, key: str) -> str:
    """Render the template in a setting, "--nodes={{ nodes }}"; text without `{{` stays as it is.

    Raises InputError, whose message begins with `key`, the setting in the site file.
    """
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return text
    # imported only if needed, as it loads Jinja2
    from dlperf_slurm.jobs.sandbox import render_setting

    return render_setting(text, values, key)


def render_words(words: Sequence[str], values: JobValues, key: str) -> list[str]:
    """Render the words of a command line; the job's bash expands `${NAME}` in the results."""
    return [ShellTemplate(render_word(word, values, key)) for word in words]


def render_directives(site: Site, topology: Topology) -> list[str]:
    """Render the site's #SBATCH directives for a topology; raises InputError for an invalid one."""
    values = list_shape_values(site, topology)
    filled = [render_word(line, values, "directives") for line in site.directives]
    try:
        return [check_directive(line) for line in filled]
    except ValueError as error:
        raise InputError(f"directives: {error}") from error
