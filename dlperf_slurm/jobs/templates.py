"""A site's own templates -> the mistakes in them, before a run directory is staged.

The mistakes are missing files, syntax errors, circular `extends`, files of other users that are
found by their name, and blocks that do not exist in the extended template, which Jinja2 would
ignore silently.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import jinja2
from jinja2 import nodes

from dlperf_slurm.config.folders import find_stranger
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.config.suggestions import suggest
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.framework_script import PLAIN_FRAMEWORK_TEMPLATE
from dlperf_slurm.jobs.render import list_template_dirs
from dlperf_slurm.jobs.sandbox import BoundedEnvironment, make_environment


def check_templates(sites: Mapping[JobKind, Site]) -> None:
    """Check the site's own templates for each kind of job; raise InputError with all mistakes.

    `sites` has the site resolved for each kind. Templates of the package are not checked.
    """
    problems: dict[str, None] = {}
    for kind, job_site in sites.items():
        if job_site.template is None:
            continue
        own = Path(job_site.template)
        environment = make_environment(list_template_dirs(job_site))
        frameworks = (f"frameworks/{kind.framework}.sh.j2", PLAIN_FRAMEWORK_TEMPLATE)
        names = [name for name in frameworks if (own.parent / name).is_file()]
        for name in (own.name, *names):
            problems.update(dict.fromkeys(_find_problems(environment, own, name)))
    if problems:
        raise InputError("\n".join(problems))


def _find_problems(environment: BoundedEnvironment, own: Path, name: str) -> Iterator[str]:
    """Yield the mistakes in a template of the site, and in those that it extends."""
    folder = own.parent
    trees: list[tuple[str, nodes.Template]] = []
    wanted = name
    # a folder, as in template = "/", is no template
    while not trees or wanted:
        if wanted in [seen for seen, _ in trees]:
            ring = " extends ".join([*(seen for seen, _ in trees), wanted])
            yield f"{folder / name}: extends itself in a loop: {ring}"
            return
        try:
            assert environment.loader is not None, "make_environment gives it a loader"
            source, *_ = environment.loader.get_source(environment, wanted)
            tree = environment.parse(source, wanted)
        except jinja2.TemplateNotFound:
            reason = f"extends {wanted!r}, which" if trees else "template"
            yield (
                f"{folder / name}: {reason} does not exist; this package has the template "
                "dlperf/base.sbatch.j2"
            )
            return
        except jinja2.TemplateSyntaxError as error:
            yield f"{folder / wanted}:{error.lineno}: {error.message}"
            return
        # a template found by name may be another user's; the site file names `own` by its path
        owner = find_stranger(folder / wanted) if folder / wanted != own else ""
        if owner:
            path = folder / wanted
            yield (
                f"{path}: belongs to user {owner}, and its lines would run in your jobs; use a "
                "copy of your own"
            )
            return
        trees.append((wanted, tree))
        wanted = _find_parent(environment, tree, wanted)
    yield from _find_unknown_blocks(folder / name, [tree for _, tree in trees])


def _find_parent(environment: BoundedEnvironment, tree: nodes.Template, name: str) -> str:
    """Return the name of the template that this one extends; "" for none or an expression."""
    for extends in tree.find_all(nodes.Extends):
        if isinstance(extends.template, nodes.Const):
            return environment.join_path(str(extends.template.value), name)
    return ""


def _find_unknown_blocks(path: Path, trees: list[nodes.Template]) -> Iterator[str]:
    """Yield a message for each top-level block that no template that this one extends has.

    `trees` are the parsed templates: that at `path`, which messages name, then those that it
    extends.
    """
    own, *parents = trees
    known = sorted({block.name for tree in parents for block in tree.find_all(nodes.Block)})
    if not parents:
        return
    for node in own.body:
        if isinstance(node, nodes.Block) and node.name not in known:
            yield (
                f"{path}:{node.lineno}: block {node.name!r} is not in the template that this one "
                f"extends; known: {', '.join(known)}{suggest(node.name, known)}"
            )
