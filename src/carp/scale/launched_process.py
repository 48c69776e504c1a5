"""A process that another carp started, which ends when that one asks for it or is gone.

Its standard input is a pipe that the other one holds, and which closes also where the other one is killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

STARTED = "CARP_STARTED_BY_CARP"
PATIENCE = 5.0  # seconds to end in an orderly way, as after Ctrl-C


def end_with_launcher() -> None:
    """Let this process end as by Ctrl-C when the one that started it asks for it, or is gone."""
    if os.environ.get(STARTED) == "1":
        signal.signal(signal.SIGINT, _interrupt_once)
        threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _interrupt_once(*_: int | FrameType | None) -> None:
    """Ctrl-C reaches all processes of a terminal, and the launcher asks them as well: both mean one thing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _wait_for_the_end() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    os._exit(1)  # it is in the middle of something that heeds no signal; the checkpoint of the last epoch is whole
