"""Wait for a port of this machine to be opened or closed."""

import socket
import time

import pytest


def wait_until_listening(port, is_expected):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if (probe.connect_ex(("127.0.0.1", port)) == 0) == is_expected:
                return
        time.sleep(0.05)
    pytest.fail(f"port {port} stayed as it was")
