"""Template words of a site file -> the words of one job, with its topology filled in."""

from collections.abc import Mapping, Sequence

from dlperf_slurm.config.job_settings import check_directive
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.launchers import ShellTemplate

JobValues = Mapping[str, object]


def list_shape_values(site: Site, topology: Topology) -> dict[str, object]:
    """Return the values that a template in `directives` may use."""
    return {
        "topology": str(topology),
        "nodes": topology.nodes,
        "devices_per_node": topology.devices_per_node,
        "world_size": topology.world_size,
        "cpus_per_rank": site.cpus_per_rank,
    }


def list_job_values(site: Site, kind: JobKind) -> dict[str, object]:
    """Return the values that templates of the launch command of a framework may use."""
    shape = list_shape_values(site, kind.topology)
    return {**shape, "framework": kind.framework, "gradient_sync": kind.gradient_sync}


def fill_word(text: str, values: JobValues, key: str) -> str:
    """Render a word of a site file; raises InputError, which names the key."""
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return text
    # imported only if needed, as it loads Jinja2
    from dlperf_slurm.jobs.sandbox import render_setting

    return render_setting(text, values, key)


def fill_words(words: Sequence[str], values: JobValues, key: str) -> list[str]:
    """Render words of a command line, in which the job's bash then expands `${NAME}`."""
    return [ShellTemplate(fill_word(word, values, key)) for word in words]


def fill_directives(site: Site, topology: Topology) -> list[str]:
    """Render the site's #SBATCH directives for a topology; raises InputError for an invalid one."""
    values = list_shape_values(site, topology)
    filled = [fill_word(line, values, "directives") for line in site.directives]
    try:
        return [check_directive(line) for line in filled]
    except ValueError as error:
        raise InputError(f"directives: {error}") from error
