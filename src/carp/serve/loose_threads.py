"""Work in a thread that nobody has to wait for: it may take as long as a server elsewhere, and the service may end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")


async def in_loose_thread(work: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
    """What a function returns or raises, called in a thread that ends with the process.

    Threads of `asyncio.to_thread` are waited for when the event loop ends, and again when the process does.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Found] = loop.create_future()

    def tell(answer: Callable[[], None]) -> None:
        if not found.done():
            answer()

    def run() -> None:
        answer: Callable[[], None]
        try:
            value = work(*given, **named)
            answer = lambda: found.set_result(value)  # noqa: E731
        except BaseException as error:
            failure = error
            answer = lambda: found.set_exception(failure)  # noqa: E731
        with suppress(RuntimeError):  # the loop has ended: nobody asks any more
            loop.call_soon_threadsafe(tell, answer)

    threading.Thread(target=run, daemon=True).start()
    return await found
