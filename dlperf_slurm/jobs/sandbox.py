"""Untrusted templates -> their text, rendered in a sandbox with bounded loops and arithmetic.

Script commands of a matrix, and the template named by a site file or a matrix's `[slurm]` table,
are rendered on the login node. Both use Jinja2's sandbox with limits. Commands are restricted
further: no assignments, macros or other files, and only a few filters and methods.
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
    """A Jinja2 sandbox that limits loop iterations and the size of numbers."""

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
        """Resolve an `extends` or `include`; a template that names itself gets the shipped one."""
        return f"dlperf/{template}" if template == parent else template

    def count(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items of a loop; raises SecurityError beyond MAX_LOOPED items in all loops."""
        for item in items:
            self.looped += 1
            if self.looped > MAX_LOOPED:
                raise SecurityError(f"loops more than {MAX_LOOPED} times")
            yield item

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator to two numbers; raises SecurityError for other types or huge values."""
        for value in (left, right):
            if not isinstance(value, (int, float)):
                raise SecurityError(f"{operator} is for numbers, not for {value!r:.40}")
            if isinstance(value, int) and value.bit_length() > MAX_BITS:
                raise SecurityError(f"{operator}: the numbers are too large")
        if operator == "**" and not abs(right) <= MAX_EXPONENT:
            raise SecurityError(f"**: an exponent is at most {MAX_EXPONENT}")
        return super().call_binop(context, operator, left, right)


def make_environment(template_dirs: Sequence[Path]) -> BoundedEnvironment:
    """Make the Jinja2 environment; of templates with one name, that in the first folder is used.

    `dlperf/NAME` is always the template that ships with the package.
    """
    shipped = jinja2.FileSystemLoader(str(find_resource_dir("templates")))
    # the prefix lets a site's template extend the shipped one of the same name
    loader = jinja2.ChoiceLoader(
        [
            jinja2.FileSystemLoader([str(folder) for folder in template_dirs]),
            jinja2.PrefixLoader({"dlperf": shipped}),
        ]
    )
    # autoescape is for HTML; the filters quote for the shell
    return BoundedEnvironment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render_command(command: str, values: Mapping[str, object]) -> str:
    """Render a command of a matrix with the values of a case.

    Raises ValueError for a syntax error, a construct that is not allowed, an unknown value, or an
    error while rendering.
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
        # the last three are raised by expressions of the template
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


# cached, as thousands of cases may share a command
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
    """Render a value of a TOML file as `render_command` does.

    Raises InputError, which names the key, for an invalid template or an unknown value.
    """
    try:
        return render_command(text, values)
    except ValueError as error:
        raise InputError(f"{key}: {error}") from error


def _check_node(node: nodes.Node) -> None:
    """Raise SecurityError for a construct that is not allowed in a command."""
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
