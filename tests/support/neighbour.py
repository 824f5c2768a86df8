"""A process of a name of its own that keeps a CPU busy until its standard input ends.

    python neighbour.py NAME

It says "busy" when it has begun.
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
