"""Which of its kernels of attention torch takes: flash, memory-efficient, cuDNN's, or none."""

from typing import Any, Mapping, Sequence, Set

from torch.utils._python_dispatch import TorchDispatchMode

PREFIX = "_scaled_dot_product_"


class NamesOfAttention(TorchDispatchMode):
    """Within it, the kernels of attention that run are `found`, as torch names them.

    One by torch's own products is none: it comes here as these (torch 2.13).
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Set[str] = set()

    def __torch_dispatch__(
        self,
        operator: Any,
        types: Sequence[Any],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] = {},
    ) -> Any:
        name = operator.overloadpacket.__name__
        if name.startswith(PREFIX):
            self.found.add(name[len(PREFIX) :])
        return operator(*arguments, **options)
