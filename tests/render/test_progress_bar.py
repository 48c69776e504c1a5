"""Training seen in a terminal."""

from __future__ import annotations

import re
from io import StringIO

import pytest

from carp.render.progress_bar import Bar

COLOUR_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(StringIO):
    def isatty(self):
        return True


def open_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def record(epoch, best=True):
    return {"epoch": epoch, "loss": 1.25, "valid_mse": 0.875, "seconds": 2.0, "valid_seconds": 0.5, "best": best}


def train_two_epochs(bar):
    bar.epoch_begins(1, 2)
    bar.batch_done()
    bar.epoch_ends(record(1))
    bar.epoch_begins(2, 2)
    bar.batch_done()


def test_the_bar_shows_loss_and_validation_error_of_the_epoch_before(monkeypatch):
    terminal = open_terminal(monkeypatch)
    bar = Bar(epochs=9)
    train_two_epochs(bar)
    bar.close()
    shown = COLOUR_SEQUENCE.sub("", terminal.getvalue())
    assert "epoch   1   loss 1.2500   validation MSE 0.8750   2.0 s  best so far\n" in shown
    assert "epoch 2 of 9 (before: loss 1.2500, validation 0.8750)" in shown


def test_a_closed_bar_leaves_the_cursor_visible(monkeypatch):
    terminal = open_terminal(monkeypatch)
    bar = Bar(epochs=9)
    train_two_epochs(bar)
    assert terminal.getvalue().rfind("\x1b[?25l") > terminal.getvalue().rfind("\x1b[?25h")
    bar.close()
    bar.close()
    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l")


def test_a_bar_interrupted_while_it_starts_can_be_closed(monkeypatch):
    terminal = open_terminal(monkeypatch)
    bar = Bar(epochs=9)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bar.console, "push_render_hook", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bar.epoch_begins(1, 2)
    bar.close()
    assert terminal.getvalue().endswith("\x1b[?25h")


def test_without_a_terminal_each_epoch_is_one_line(capsys):
    bar = Bar(epochs=9)
    train_two_epochs(bar)
    bar.epoch_ends(record(2, best=False))
    bar.close()
    line = "epoch {:3d}   loss 1.2500   validation MSE 0.8750   2.0 s{}\n"
    assert capsys.readouterr().err == line.format(1, "  best so far") + line.format(2, "")
