"""Work in a thread that nobody has to wait for: it may take as long as a server elsewhere, and the service may end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")


async def in_loose_thread(work: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
    """What a function returns or raises, called in a thread that ends with the process.

    Threads of `asyncio.to_thread` are waited for when the event loop ends, and again when the process does.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Found] = loop.create_future()

    def tell(finish: Callable[[], None]) -> None:
        if not found.done():
            finish()

    def run() -> None:
        try:
            finish = partial(found.set_result, work(*given, **named))
        except BaseException as error:
            finish = partial(found.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended: nobody asks any more
            loop.call_soon_threadsafe(tell, finish)

    threading.Thread(target=run, daemon=True).start()
    return await found
