"""What the ranks send to KVStore's servers -> sums of gradients, or weights that are updated."""

import pickle
from typing import Any, Callable

import mxnet as mx
from mxnet.kvstore.kvstore_server import KVStoreServer

# From this key on there are sums only, whether weights are updated here or not.
FIRST_SUM = 2**24


class Server(KVStoreServer):
    """MXNet's, but a new learning rate leaves the momentum as it is, and see FIRST_SUM."""

    updater: mx.optimizer.Updater

    def _controller(self) -> Callable[[int, bytes, Any], None]:
        """What takes the messages: an optimizer from every rank, or its new learning rate."""

        def control(command: int, message: bytes, _: Any) -> None:
            content = pickle.loads(message)
            if isinstance(content, float):
                self.updater.optimizer.set_learning_rate(content)
            else:
                self.updater = mx.optimizer.get_updater(content)
                self.kvstore._set_updater(self._update)

        return control

    def _update(self, key: int, gradient: mx.nd.NDArray, weight: mx.nd.NDArray) -> None:
        if key < FIRST_SUM:
            self.updater(key, gradient, weight)
        else:
            gradient.copyto(weight)


def serve() -> None:
    """As a server or as the scheduler, until all ranks have left."""
    Server(mx.kvstore.create("dist")).run()
