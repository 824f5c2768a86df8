"""Authenticated messages between two processes that share a secret, over a socket.

Both sides first send a nonce. Secret and nonces give a key for each direction, and each message has
an HMAC over its sequence number and its bytes, which is checked before unpickling: without the
secret nobody can send, change, replay or reorder messages. multiprocessing.connection checks the
secret only once, by MD5 before Python 3.12, and waits for a silent peer without a timeout.
"""

import hmac
import os
import pickle
import socket
import struct
import threading
import time
from typing import Any, Optional, Union

NONCE_BYTES = 32
_HEADER = struct.Struct("!Q32s")
_NUMBER = struct.Struct("!Q")
# limits of all first messages together, before the peer is authenticated
HELLO_SECONDS = 5.0
HELLO_BYTES = 4096
# the kernel reports an unreachable peer within a minute
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class AuthenticationError(ConnectionError):
    """A message from a peer that does not know the secret."""


class UnreadableError(ConnectionError):
    """An authenticated message whose pickle this process cannot load."""


class Channel:
    """An authenticated connection to one peer."""

    def __init__(self, connection: socket.socket, secret: bytes, is_first: bool) -> None:
        """Exchange nonces; `is_first` must differ between the two sides. Raises OSError.

        Messages are limited in size and time until `open` is called.
        """
        self._connection = connection
        self._limit: Optional[int] = HELLO_BYTES
        self._deadline: Optional[float] = time.monotonic() + HELLO_SECONDS
        self._sending = threading.Lock()
        self._sent = self._received = 0
        connection.settimeout(HELLO_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = os.urandom(NONCE_BYTES)
        connection.sendall(own)
        other = self._read(NONCE_BYTES)
        both = own + other if is_first else other + own
        keys = [hmac.new(secret, both + side, "sha256").digest() for side in (b"first", b"second")]
        self._send_key, self._receive_key = keys if is_first else reversed(keys)

    def open(self) -> None:
        """Remove the limits: wait for messages of any size, without a timeout."""
        self._limit = self._deadline = None
        self._connection.settimeout(None)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            self._connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """Return the socket's file descriptor, for `selectors`."""
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def send(self, value: Any) -> None:
        """Send a picklable value; thread-safe. Raises OSError if the connection is lost."""
        payload = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        with self._sending:
            code = _sign(self._send_key, self._sent, payload)
            self._sent += 1
            self._connection.sendall(_HEADER.pack(len(payload), code))
            self._connection.sendall(payload)

    def receive(self) -> Any:
        """Return the next value; not thread-safe.

        Raises AuthenticationError for a message with a wrong HMAC, UnreadableError for one that
        cannot be unpickled, other OSErrors if the connection is lost.
        """
        size, code = _HEADER.unpack(self._read(_HEADER.size))
        if self._limit is not None and size > self._limit:
            raise AuthenticationError(
                f"the first message of a connection has {size} bytes, more than the limit"
            )
        payload = self._read(size)
        if not hmac.compare_digest(code, _sign(self._receive_key, self._received, payload)):
            raise AuthenticationError("a message is not signed with this job's secret")
        self._received += 1
        try:
            return pickle.loads(payload)
        except Exception as error:  # whatever the constructor of a pickled object raises
            raise UnreadableError(f"a message cannot be unpickled: {error!r}") from error

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            if self._deadline is not None:
                self._connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
            count = self._connection.recv_into(view)
            if not count:
                raise ConnectionResetError("the connection was closed")
            view = view[count:]
        return data


def _sign(key: bytes, number: int, payload: Union[bytes, bytearray]) -> bytes:
    code = hmac.new(key, _NUMBER.pack(number), "sha256")
    code.update(payload)
    return code.digest()
