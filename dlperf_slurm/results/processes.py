"""A function and its arguments -> its values in their order, made on several cores."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TypeVar, cast

Argument = TypeVar("Argument")
Value = TypeVar("Value")

# login nodes have many cores, and many users
MOST_PROCESSES = 8


def map_on_cores(
    function: Callable[[Argument], Value], arguments: Sequence[Argument], least: int
) -> Iterator[Value]:
    """The values of the function, in the order of its arguments.

    `least` is how many arguments a process has to have to be worth it. Processes are copies of this
    one; each has every n-th argument, and waits while its values are not taken. What one of them
    cannot make, or say, is made here again, where it raises.
    """
    count = min(len(arguments) // least, _count_cores())
    if count < 2:
        yield from map(function, arguments)
        return
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    started = []
    try:
        for place, (_, writer) in enumerate(pipes):
            share = arguments[place::count]
            process = context.Process(target=_send_values, args=(function, share, writer, pipes))
            process.start()
            started.append(process)
        for _, writer in pipes:
            writer.close()
        for place, argument in enumerate(arguments):
            try:
                value = cast(Value, pipes[place % count][0].recv())
            except (EOFError, OSError):
                value = function(argument)
            yield value
    finally:
        for reader, writer in pipes:
            reader.close()
            writer.close()
        for process in started:
            process.terminate()
            process.join()


def _count_cores() -> int:
    """Cores that this process may have; one where a copy of it may hang: beside other threads."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _send_values(
    function: Callable[[Argument], Value],
    arguments: Sequence[Argument],
    writer: Connection,
    pipes: Sequence[tuple[Connection, Connection]],
) -> None:
    """Send the value of each argument until one raises: who waits for it sees the end."""
    # what was made before the copy may have threads, which are not here to be ended with it
    gc.freeze()
    # whoever interrupts the tool is answered by the process that they started
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for reader, other in pipes:
        reader.close()
        if other is not writer:
            other.close()
    try:
        for argument in arguments:
            writer.send(function(argument))
    except Exception:
        os._exit(1)
