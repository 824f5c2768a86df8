"""Connections between rank 0 and the others -> the part of mpi4py's communicator that World uses.

A thread receives from all peers, so that a rank notices the end of another one while its main
thread is blocked. No message is sent during the measured steps, so that the thread sleeps.
"""

import atexit
import os
import queue
import selectors
import sys
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from dlperf_slurm.worker.rendezvous.connections import Connections
from dlperf_slurm.worker.rendezvous.transport import Channel

EXIT_CODE = 1

# control messages, beside those with values
FAILING = "failing"
ALL_ARE_FAILING = "another rank failed"
END = "end"
GOODBYE = "goodbye"


class SocketCommunicator:
    """A communicator of all ranks of a launch, with mpi4py's method names."""

    def __init__(
        self, rank: int, met: Connections, report_loss: Callable[[int, str], None]
    ) -> None:
        """Start the receiving thread over the connections `met`.

        It calls report_loss(rank, host) for a peer that ends unexpectedly.
        """
        self._rank = rank
        self._channels = met.channels
        self._hosts = met.hosts
        self._report_loss = report_loss
        # unbounded, so that the receiving thread never waits for the main thread
        self._values: Dict[int, "queue.Queue[Tuple[str, Any]]"] = {
            peer: queue.Queue() for peer in met.channels
        }
        self._failing: Set[int] = set()
        self._all_are_failing = threading.Event()
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        atexit.register(self.leave)
        # an open socket in a child process would hide the end of this rank from the others
        os.register_at_fork(after_in_child=self._close)

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return len(self._hosts)

    def Barrier(self) -> None:
        """Wait until all ranks have called this."""
        self.allgather(None)

    def gather(self, value: Any, root: int) -> Optional[List[Any]]:
        """Return the values of all ranks by rank on rank 0, None elsewhere; `root` must be 0."""
        return self._gather(self.gather.__name__, value)

    def allgather(self, value: Any) -> List[Any]:
        """Return the values of all ranks by rank, on every rank."""
        name = self.allgather.__name__
        values = self._gather(name, value)
        if values is None:
            return list(self._take(name, 0))
        for channel in self._channels.values():
            channel.send((name, values))
        return values

    def Dup(self) -> "SocketCommunicator":
        """Return itself: failing ranks use control messages, not a communicator of their own."""
        return self

    def Ibarrier(self) -> "SocketCommunicator":
        """Announce that this rank fails; return a request whose `Test` says if all ranks have."""
        if self._rank == 0:
            self._count_failing(0)
        else:
            self._send_to_peers(FAILING)
        return self

    def Test(self) -> bool:
        return self._all_are_failing.is_set()

    def Abort(self, exit_code: int) -> None:
        """End all ranks, this one with `exit_code`."""
        self._end(f"rank {self._rank} failed", exit_code)

    def leave(self) -> None:
        """Announce to the other ranks that the end of this one is not a failure."""
        self._send_to_peers(GOODBYE)

    def _gather(self, name: str, value: Any) -> Optional[List[Any]]:
        if self._rank != 0:
            self._channels[0].send((name, value))
            return None
        return [value, *(self._take(name, peer) for peer in sorted(self._channels))]

    def _take(self, name: str, peer: int) -> Any:
        told, value = self._values[peer].get()
        if told != name:
            raise RuntimeError(f"rank {self._rank} calls {name}, but rank {peer} calls {told}")
        return value

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for peer, channel in self._channels.items():
                selector.register(channel, selectors.EVENT_READ, peer)
            while selector.get_map():
                for key, _ in selector.select():
                    if not self._handle_message(key.data, self._channels[key.data]):
                        selector.unregister(key.fileobj)

    def _handle_message(self, peer: int, channel: Channel) -> bool:
        """Handle the next message of a peer; return whether more may follow."""
        try:
            name, value = channel.receive()
        except OSError as error:
            self._lose(peer, error)
            return False
        if name == END:
            self._end(value, EXIT_CODE, peer)
        elif name == FAILING:
            self._count_failing(peer)
        elif name == ALL_ARE_FAILING:
            self._all_are_failing.set()
        elif name != GOODBYE:
            self._values[peer].put((name, value))
        return bool(name != GOODBYE)

    def _count_failing(self, rank: int) -> None:
        self._failing.add(rank)
        if len(self._failing) == len(self._hosts):
            self._send_to_peers(ALL_ARE_FAILING)
            self._all_are_failing.set()

    def _lose(self, peer: int, error: OSError) -> None:
        try:
            self._report_loss(peer, self._hosts[peer])
        finally:
            # end all ranks even if the failure cannot be written
            self._end(f"rank {peer} on {self._hosts[peer]} disconnected: {error}", EXIT_CODE, peer)

    def _end(self, reason: str, exit_code: int, told_by: Optional[int] = None) -> None:
        """End the other ranks and this process at once: the main thread may be blocked in C.

        `told_by` is the rank that asked for this or is gone, and gets no message.
        """
        try:
            self._send_to_peers(END, reason, told_by)
            print(f"rank {self._rank} ends: {reason}", file=sys.stderr, flush=True)
        finally:
            os._exit(exit_code)

    def _send_to_peers(self, name: str, value: Any = None, left_out: Optional[int] = None) -> None:
        """Send a control message, (name, value), to all connected peers except rank `left_out`."""
        for peer, channel in self._channels.items():
            if peer != left_out:
                with suppress(OSError):
                    channel.send((name, value))

    def _close(self) -> None:
        for channel in self._channels.values():
            channel.close()
