"""A layer or a function -> one static graph, without or with CINN."""

from typing import Any

import paddle


def compile_graph(part: Any, compiler: str) -> Any:
    """A layer is changed by it."""
    if compiler == "cinn" and not paddle.is_compiled_with_cinn():
        raise RuntimeError("this build of Paddle has no CINN; use compiler 'to_static'")
    # The default of `backend` is CINN.
    backend = "CINN" if compiler == "cinn" else None
    return paddle.jit.to_static(part, full_graph=True, backend=backend)
