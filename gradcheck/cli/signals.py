"""However a run is asked to stop, it stops as at Ctrl-C: its workers are ended, what is done is kept, and it says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

POLITE = ("SIGTERM", "SIGHUP")  # a batch system's wish, and the end of a terminal


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block these signals raise KeyboardInterrupt, but for those that are ignored, as SIGHUP is under `nohup`."""
    main = threading.current_thread() is threading.main_thread()  # no other may change them
    before = {}
    for name in POLITE:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and main and signal.getsignal(number) == signal.SIG_DFL:
            before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
