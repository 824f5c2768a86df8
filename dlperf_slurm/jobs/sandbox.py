"""Templates that may be a stranger's -> their text, without running anything or without end.

A matrix names the command of a script, and its `[slurm]` table or a run's site.toml a template.
Both are rendered on the login node, so in Jinja2's sandbox, with bounds on what they loop and
compute. A command has even less: no assignments, macros or other files, few filters and methods.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.quoting import (
    quote_comment,
    quote_directive,
    quote_expanding,
    quote_option,
    quote_search_folder,
    quote_words,
)

MAX_COMMAND_CHARACTERS = 20_000
MAX_TEXT_CHARACTERS = 1_000_000
MAX_RANGE = 10_000
MAX_LOOPED = 1_000_000
MAX_BITS = 4096
MAX_EXPONENT = 64

_COMMAND_NODES = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.For,
    nodes.Name,
    nodes.Const,
    nodes.Tuple,
    nodes.List,
    nodes.Dict,
    nodes.Pair,
    nodes.Keyword,
    nodes.CondExpr,
    nodes.Filter,
    nodes.Test,
    nodes.Call,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.Concat,
    nodes.Compare,
    nodes.Operand,
    nodes.BinExpr,
    nodes.UnaryExpr,
)
_COMMAND_METHODS = ("startswith", "endswith", "lower", "upper", "strip", "split")
_COMMAND_FILTERS = (
    "abs",
    "counted",
    "default",
    "first",
    "float",
    "int",
    "join",
    "last",
    "length",
    "lower",
    "max",
    "min",
    "replace",
    "sh",
    "sh_words",
    "string",
    "sum",
    "trim",
    "upper",
)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose loops end, and whose arithmetic stays small."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.looped = 0
        self.globals = {"range": _make_range}
        self.filters["counted"] = self.count
        self.filters["directive"] = quote_directive
        self.filters["option"] = quote_option
        self.filters["search_folder"] = quote_search_folder
        self.filters["sh"] = lambda value: shlex.quote(str(value))
        self.filters["comment"] = quote_comment
        self.filters["sh_expanding"] = quote_expanding
        self.filters["sh_words"] = quote_words

    def _parse(self, source: str, name: Any, filename: Any) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "counted", [], [], None, None)
        return tree

    def join_path(self, template: str, parent: str) -> str:
        """The name of what `parent` extends or includes; its namesake is the shipped one."""
        return f"dlperf/{template}" if template == parent else template

    def count(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items of a loop; raises SecurityError once all loops together have gone too far."""
        for item in items:
            self.looped += 1
            if self.looped > MAX_LOOPED:
                raise SecurityError(f"loops more than {MAX_LOOPED} times")
            yield item

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The result of an operator, of numbers alone; raises SecurityError for anything large."""
        for value in (left, right):
            if not isinstance(value, (int, float)):
                raise SecurityError(f"{operator} is for numbers, not for {value!r:.40}")
            if isinstance(value, int) and value.bit_length() > MAX_BITS:
                raise SecurityError(f"{operator}: the numbers are too large")
        if operator == "**" and not abs(right) <= MAX_EXPONENT:
            raise SecurityError(f"**: an exponent is at most {MAX_EXPONENT}")
        return super().call_binop(context, operator, left, right)


def make_environment(template_dirs: Sequence[Path]) -> BoundedEnvironment:
    """The Jinja2 environment; a template in an earlier folder hides its namesakes.

    `dlperf/NAME` is always the one that ships with the package.
    """
    shipped = jinja2.FileSystemLoader(str(find_resource_dir("templates")))
    # a template of a site may have the name of the one that it extends
    loader = jinja2.ChoiceLoader(
        [
            jinja2.FileSystemLoader([str(folder) for folder in template_dirs]),
            jinja2.PrefixLoader({"dlperf": shipped}),
        ]
    )
    # a shell script is no HTML: escaping is the filters' work
    return BoundedEnvironment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render_command(command: str, values: Mapping[str, object]) -> str:
    """The text of a matrix's command over the values of a case.

    Raises ValueError for what a command may not do, or is not, or cannot compute.
    """
    try:
        return _render_bounded(command, values)
    except RecursionError:
        raise ValueError("SecurityError: is nested too deep") from None
    except jinja2.UndefinedError as error:
        raise ValueError(f"{error}; known: {', '.join(values)}") from error
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno}: {type(error).__name__}: {error.message}") from error
    except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError) as error:
        # what a template computes may raise the latter three
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _render_bounded(command: str, values: Mapping[str, object]) -> str:
    environment, template = _compile_command(command)
    environment.looped = 0
    pieces: list[str] = []
    size = 0
    for piece in template.generate(values):
        size += len(piece)
        if size > MAX_TEXT_CHARACTERS:
            raise SecurityError(f"makes more than {MAX_TEXT_CHARACTERS} characters")
        pieces.append(piece)
    return "".join(pieces)


# a matrix has thousands of cases of one command
@lru_cache(maxsize=16)
def _compile_command(command: str) -> tuple[BoundedEnvironment, jinja2.Template]:
    if len(command) > MAX_COMMAND_CHARACTERS:
        raise SecurityError(f"has more than {MAX_COMMAND_CHARACTERS} characters")
    environment = make_environment([])
    environment.filters = {
        **{name: environment.filters[name] for name in _COMMAND_FILTERS},
        "join": _join,
        "replace": _replace,
    }
    tree = environment.parse(command)
    for node in tree.find_all(nodes.Node):
        _check_node(node)
    return environment, environment.from_string(tree)


def render_setting(text: str, values: Mapping[str, object], key: str) -> str:
    """What `render_command` makes of a value of a TOML file.

    Raises InputError, which names the key, when it is no template, or asks for a value that there
    is not.
    """
    try:
        return render_command(text, values)
    except ValueError as error:
        raise InputError(f"{key}: {error}") from error


def _check_node(node: nodes.Node) -> None:
    """Raises SecurityError for what stands in no command."""
    if not isinstance(node, _COMMAND_NODES) or (isinstance(node, nodes.For) and node.recursive):
        name = type(node).__name__.lower()
        raise SecurityError(
            f"line {node.lineno}: {name} cannot stand in a command; allowed: {{{{ values }}}}, if "
            "and for"
        )
    if isinstance(node, nodes.Call):
        called = node.node
        is_range = isinstance(called, nodes.Name) and called.name == "range"
        if not is_range and not (
            isinstance(called, nodes.Getattr) and called.attr in _COMMAND_METHODS
        ):
            raise SecurityError(
                f"line {node.lineno}: a command calls nothing but range, "
                f"{', '.join(_COMMAND_METHODS)}"
            )


def _make_range(*bounds: int) -> range:
    made = range(*bounds)
    if made and (made[-1] - made[0]) // made.step >= MAX_RANGE:
        raise SecurityError(f"range has more than {MAX_RANGE} items")
    return made


def _join(items: Iterable[Any], separator: str = "") -> str:
    texts = [str(item) for item in items]
    _check_size(sum(map(len, texts)) + len(texts) * len(separator))
    return separator.join(texts)


def _replace(text: str, old: str, new: str) -> str:
    _check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _check_size(characters: int) -> None:
    if characters > MAX_TEXT_CHARACTERS:
        raise SecurityError(f"makes more than {MAX_TEXT_CHARACTERS} characters")
