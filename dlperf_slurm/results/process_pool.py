"""A function and its arguments -> its values in order, computed by several processes."""

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

# a limit, because login nodes are shared
MOST_PROCESSES = 8


def map_on_cores(
    function: Callable[[Argument], Value], arguments: Sequence[Argument], least: int
) -> Iterator[Value]:
    """Yield the function's value for each argument, in order, computed by forked processes.

    `least` is the number of arguments for which starting one more process pays. Each of n processes
    computes every n-th argument, this one the first of each n; the others block until their values
    are consumed. A value that a process fails to compute or send is computed again in this process,
    which then raises the error.
    """
    count = min(len(arguments) // least, _count_cores())
    if count < 2:
        yield from map(function, arguments)
        return
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(count - 1)]
    started = []
    try:
        for place, (_, writer) in enumerate(pipes, 1):
            share = arguments[place::count]
            process = context.Process(target=_send_values, args=(function, share, writer, pipes))
            process.start()
            started.append(process)
        for _, writer in pipes:
            writer.close()
        for place, argument in enumerate(arguments):
            turn = place % count
            if turn == 0:
                yield function(argument)
                continue
            try:
                value = cast(Value, pipes[turn - 1][0].recv())
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
    """Count the usable cores; 1 if fork is not safe because of other threads."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _send_values(
    function: Callable[[Argument], Value],
    arguments: Sequence[Argument],
    writer: Connection,
    pipes: Sequence[tuple[Connection, Connection]],
) -> None:
    """Send the function's value of each argument through `writer` to the parent process.

    On an error this process exits, and the reader gets EOFError. `pipes` are those of all
    processes; their other ends are closed here.
    """
    # objects from before the fork may own threads, which do not exist here: do not collect them
    gc.freeze()
    # Ctrl-C is handled by the parent process
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
