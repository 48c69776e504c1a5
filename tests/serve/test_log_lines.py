"""The log: every line in its order, and nobody waits for who reads it."""

from __future__ import annotations

import io
import json
import threading

from carp.serve import log_lines
from carp.serve.log_lines import LogLines

FOR_EVER = 60  # seconds; what takes so long has failed


def events(stream):
    return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


def test_every_line_is_there_in_its_order_once_the_log_is_closed():
    stream = io.StringIO()
    log = LogLines(stream)
    for number in range(5000):
        log.write(str(number), nothing=None)
    log.close(FOR_EVER)
    assert events(stream) == [str(number) for number in range(5000)]
    assert "nothing" not in stream.getvalue()
    assert log.dropped == 0


def test_lines_that_come_while_others_are_written_are_written_too():
    stream = io.StringIO()
    log = LogLines(stream)
    threads = [threading.Thread(target=lambda: [log.write("x") for _ in range(3000)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close(FOR_EVER)
    assert events(stream) == ["x"] * 9000


def test_lines_are_written_while_the_service_lives():
    class Telling(io.StringIO):
        come = threading.Event()

        def flush(self):
            self.come.set()

    stream = Telling()
    log = LogLines(stream)
    for number in range(3):
        log.write(str(number))
        assert stream.come.wait(FOR_EVER)
        stream.come.clear()
    assert events(stream) == ["0", "1", "2"]
    log.close(FOR_EVER)


class StuckReader(io.StringIO):
    """Takes nothing until it is let."""

    def __init__(self):
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()

    def write(self, text):
        self.asked.set()
        assert self.go_on.wait(FOR_EVER)
        return super().write(text)


def test_a_reader_that_stops_reading_stops_nobody_and_what_it_misses_is_counted(monkeypatch):
    monkeypatch.setattr(log_lines, "MOST_WAITING", 100)
    stream = StuckReader()
    log = LogLines(stream)
    log.write("first")
    assert stream.asked.wait(FOR_EVER)
    for number in range(150):
        log.write(str(number))
    assert log.dropped == 50
    stream.go_on.set()
    log.close(FOR_EVER)
    assert events(stream) == ["first", *(str(number) for number in range(100))]


def test_a_reader_that_has_gone_stops_nobody():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    log = LogLines(Gone())
    for _ in range(3):
        log.write("x")
    log.close(FOR_EVER)
    assert log.dropped == 3
