"""A forward pass -> the attention kernels that torch ran: flash, memory-efficient or cuDNN."""

from typing import Any, Mapping, Sequence, Set

from torch.utils._python_dispatch import TorchDispatchMode

PREFIX = "_scaled_dot_product_"


class NamesOfAttention(TorchDispatchMode):
    """Context manager that records in `found` which fused attention kernels torch dispatches.

    Kernels are named as in torch, without the prefix. Unfused attention (torch's math backend) is
    dispatched as plain matrix products and leaves `found` empty (torch 2.13).
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
