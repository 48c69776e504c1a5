"""What several kinds of tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from carp import Recommender

# How long an example takes says how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile(
    "any-machine", deadline=None, max_examples=int(os.environ.get("CARP_EXAMPLES", "100"))
)
hypothesis.settings.load_profile("any-machine")

# A shell that runs the tests in the background ignores Ctrl-C, and every command the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real review data: $CARP_DATA, else ../shared/data beside the checkout."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("CARP_DATA") or root.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"there is no real review data at {folder}; set CARP_DATA to its folder")
    return folder


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recommender], Path]:
    """Saves a fitted recommender; the folder of its bundle."""

    def save(recommender: Recommender) -> Path:
        folder = tmp_path_factory.mktemp("bundle") / "model"
        recommender.save(folder)
        return folder

    return save


@pytest.fixture(scope="module")
def single_thread() -> Iterator[None]:
    """Threads cost tiny models more than they give, and far more where others use the machine too."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
