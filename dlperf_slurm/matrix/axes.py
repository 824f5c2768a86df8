"""The axes of a matrix: allowed values, their text in case ids and labels, and where each applies.

The fields and defaults are those of `contract.axes.Axes`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from dlperf_slurm.contract.axes import INFER, ON_DEVICE, ON_HOST, TRAIN, Axes
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.matrix import value_types

# a point of the matrix: the values of "model" and of all axes (or of those chosen so far)
Point = Mapping[str, Any]

# precisions with fp16 gradients, which need loss scaling
_SCALED_PRECISIONS = ("amp-fp16", "fp16")


def _is_training(point: Point) -> bool:
    return bool(point["mode"] == TRAIN)


def _is_scaled(point: Point) -> bool:
    return _is_training(point) and point["precision"] in _SCALED_PRECISIONS


def _is_inference(point: Point) -> bool:
    return bool(point["mode"] == INFER)


def _is_generation(point: Point) -> bool:
    return _is_inference(point) and bool(point["output_tokens"])


def _has_loader(point: Point) -> bool:
    """Return whether a case's data comes from a data loader, not from memory of device or host."""
    return point["data"] not in (ON_DEVICE, ON_HOST)


@dataclass(frozen=True)
class AxisSpec:
    """An axis of the matrix: a setting that has one of several values in each case.

    `kind` is the type of a value in a matrix, `bound` the type in a condition. `description` and
    `unit` document the columns of frames. `label` formats a value that is not the default, for
    tables; "" if titles, rows or columns show the value. `id_text` formats a value in a case id.
    Cases to which the axis does not apply have its default value.
    """

    name: str
    kind: Any
    description: str
    unit: str = ""
    label: str = "{}"
    id_text: str = "{}"
    is_always_in_id: bool = False
    bound: Any = None
    applies: Callable[[Point], bool] = lambda point: True

    @property
    def default(self) -> Any:
        """The default value; None if a matrix must set the axis."""
        return DEFAULTS.get(self.name)


DEFAULTS = {field.name: field.default for field in fields(Axes) if field.default is not MISSING}

AXIS_SPECS = (
    AxisSpec(
        "framework",
        value_types.Framework,
        "Name of the framework.",
        label="",
        is_always_in_id=True,
    ),
    AxisSpec(
        "topology",
        value_types.TopologyName,
        "Nodes and devices per node: '2n8g' is 2 nodes with 8 devices each, one rank per device.",
        label="",
        is_always_in_id=True,
    ),
    AxisSpec(
        "batch_size_per_device",
        value_types.AnyBatchSize,
        "Batch size of each rank: a number, 'max' for the largest that fits into memory, or '256 "
        "-> 224 -> 196' for the first of these that fits.",
        unit="samples",
        label="",
        id_text="bs{}",
        is_always_in_id=True,
        bound=value_types.BatchBound,
    ),
    AxisSpec(
        "precision",
        value_types.Precision,
        "Number formats of the computation; 'amp-' is automatic mixed precision.",
        label="",
        is_always_in_id=True,
    ),
    AxisSpec("compiler", value_types.Compiler, "Compiler of the model, or 'none'."),
    AxisSpec(
        "memory_format",
        value_types.MemoryFormat,
        "Memory layout of images: channels first or last.",
    ),
    AxisSpec(
        "gradient_sync",
        value_types.GradientSync,
        "How ranks average gradients: 'native' is the framework's own way; 'sharded' also splits "
        "parameters and the optimizer's state over the ranks.",
    ),
    AxisSpec(
        "clip_global_norm",
        bool,
        "Whether gradients are clipped by their global norm.",
        label="clip",
        id_text="clip",
    ),
    AxisSpec(
        "mode",
        value_types.Mode,
        "Training (a step is an optimizer update) or inference (a step is a forward pass, or a "
        "generation if there are `output_tokens`).",
        label="",
    ),
    AxisSpec(
        "script",
        str,
        "Script that measures: 'worker' (this tool's), or the NAME of a table [scripts.NAME].",
    ),
    AxisSpec("data", value_types.Data, "Source of the batches.", label="data={}"),
    AxisSpec(
        "data_workers",
        value_types.PositiveInt,
        "Number of data loading workers per rank.",
        unit="readers",
        label="{} workers",
        id_text="workers{}",
        bound=value_types.BoundOrNumber,
        applies=_has_loader,
    ),
    AxisSpec(
        "prefetch_batches",
        value_types.PositiveInt,
        "Number of batches to load in advance.",
        unit="batches",
        label="prefetch {}",
        id_text="prefetch{}",
        bound=value_types.BoundOrNumber,
        applies=_has_loader,
    ),
    AxisSpec(
        "optimizer",
        value_types.Optimizer,
        "Optimizer; 'default' is the optimizer of the model.",
        applies=_is_training,
    ),
    AxisSpec(
        "gradient_accumulation",
        value_types.PositiveInt,
        "Number of batches per rank whose gradients are accumulated in one step.",
        unit="batches",
        label="accumulate {}",
        id_text="accumulate{}",
        bound=value_types.BoundOrNumber,
        applies=_is_training,
    ),
    AxisSpec(
        "activation_checkpointing",
        bool,
        "Whether the backward pass recomputes each block's activations instead of storing them.",
        label="checkpointed",
        id_text="checkpointed",
        applies=_is_training,
    ),
    AxisSpec(
        "loss_scale",
        value_types.LossScale,
        "Loss scale for fp16 gradients: a number, or 'dynamic'.",
        label="loss scale {}",
        id_text="scale{}",
        applies=_is_scaled,
    ),
    AxisSpec(
        "output_tokens",
        value_types.NaturalInt,
        "Number of tokens to generate after each prompt, by prefill and decoding with a KV cache; "
        "with 0, only a forward pass is measured.",
        unit="tokens",
        label="output {}",
        id_text="output{}",
        bound=value_types.BoundOrNumber,
        applies=_is_inference,
    ),
    AxisSpec(
        "prompt_length",
        value_types.PositiveInt,
        "Number of tokens in each prompt.",
        unit="tokens",
        label="prompt {}",
        id_text="prompt{}",
        bound=value_types.BoundOrNumber,
        applies=_is_generation,
    ),
    AxisSpec(
        "global_batch_size",
        value_types.NaturalInt,
        "Number of samples per step over all devices, the same on each topology (strong scaling). "
        "It sets `batch_size_per_device`, and must be a multiple of devices x "
        "`gradient_accumulation`. With 0, `batch_size_per_device` is the same on each topology "
        "(weak scaling).",
        unit="samples",
        label="",
        id_text="global{}",
        bound=value_types.BoundOrNumber,
        applies=_is_training,
    ),
)
AXES = tuple(spec.name for spec in AXIS_SPECS)

# axes that distinguish the columns of a table; the script comes first
VARIANT_SPECS = tuple(
    sorted((spec for spec in AXIS_SPECS if spec.label), key=lambda spec: spec.name != "script")
)


def _rank_in_id(spec: AxisSpec) -> int:
    """Return a sort key, 0 to 3, for the position of an axis in case ids.

    Axes that are always in the id come first, then words, numbers with a name, and flags.
    """
    if spec.is_always_in_id:
        return 0
    return 1 if spec.id_text == "{}" else 2 if "{}" in spec.id_text else 3


_ID_SPECS = tuple(sorted(AXIS_SPECS, key=_rank_in_id))


def make_case_id(model: str, axes: Axes) -> str:
    """Make the id of a case, such as "pytorch-resnet50-1n8g-bs256-fp32".

    It is safe as a file name and the same in every run; most default values are left out.
    """
    framework, *rest = (
        # the id is a file name
        spec.id_text.format(value).replace(" -> ", "-")
        for spec in _ID_SPECS
        for value in [getattr(axes, spec.name)]
        if spec.is_always_in_id or value != spec.default
    )
    return "-".join([framework, model, *rest])


def normalize(point: Point) -> Point:
    """Return a point (model and a value on each axis) with defaults on axes that do not apply.

    `data = ["device", "folder"]` with `data_workers = [1, 4]` thus makes three cases, not four. A
    global batch size sets the batch size per device, to 0 if it cannot be shared equally.
    """
    meaningless = {spec.name: spec.default for spec in AXIS_SPECS if not spec.applies(point)}
    point = {**point, **meaningless}
    if point["global_batch_size"]:
        # 0 if the global batch size is not divisible, which the expansion refuses
        parts = parse_topology(point["topology"]).world_size * point["gradient_accumulation"]
        share, rest = divmod(point["global_batch_size"], parts)
        point["batch_size_per_device"] = 0 if rest else share
    return point
