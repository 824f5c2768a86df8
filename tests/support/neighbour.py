"""A process with a given name that keeps a CPU busy until its standard input ends.

    python neighbour.py NAME

Prints "busy" once it has started.
"""

import os
import sys
import threading
from pathlib import Path


def main():
    Path("/proc/self/comm").write_text(sys.argv[1])
    print("busy", flush=True)
    threading.Thread(target=end_with_input, daemon=True).start()
    while True:
        pass


def end_with_input():
    sys.stdin.read()
    os._exit(0)


main()
