"""What the paper printed: test MSE by system and dataset, and its analyses of M and τ.

Li et al., SIGIR 2019: the tables of the comparison, of viewpoint numbers and of routing iterations.
"""

from __future__ import annotations

import re

DATASETS = (
    "Musical Instruments",
    "Office Products",
    "Digital Music",
    "Tools Improvement",
    "Video Games",
    "Beer",
    "Yelp16-17",
)
# The first of these that a corpus' name contains, letters and digits alone, says which dataset it is.
NAMES = {
    "musicalinstruments": "Musical Instruments",
    "officeproducts": "Office Products",
    "digitalmusic": "Digital Music",
    "toolsimprovement": "Tools Improvement",
    "toolsandhomeimprovement": "Tools Improvement",
    "videogames": "Video Games",
    "ratebeer": "Beer",
    "yelp": "Yelp16-17",
}
REMARKS = {"Beer": "the paper's Beer is another crawl of RateBeer: its figures are of other reviews"}


def _row(*figures: float) -> dict[str, float]:
    return dict(zip(DATASETS, figures, strict=False))


COMPARISON = {
    "pmf": _row(1.398, 1.092, 1.206, 1.566, 1.672, 1.641, 2.574),
    "rblt": _row(0.815, 0.759, 0.870, 0.983, 1.143, 0.576, 1.569),
    "cmle": _row(0.817, 0.759, 0.885, 1.020, 1.253, 0.605, 1.593),
    "deepconn": _row(0.814, 0.860, 1.056, 1.061, 1.238, 0.618, 1.593),
    "dattn": _row(0.982, 0.825, 0.911, 1.043, 1.145, 0.614, 1.573),
    "transnet": _row(0.798, 0.759, 0.913, 1.003, 1.190, 0.587, 1.523),
    "tarmf": _row(0.943, 0.789, 0.853, 1.169, 1.195, 0.912, 1.914),
    "mpcn": _row(0.824, 0.769, 0.903, 1.017, 1.201, 0.616, 1.617),
    "anr": _row(0.795, 0.742, 0.867, 0.975, 1.182, 0.590, 1.553),
    "carp-paper": _row(0.773, 0.719, 0.820, 0.960, 1.084, 0.556, 1.508),
    "carp-ra": _row(0.789, 0.727, 0.836, 0.969, 1.100, 0.567, 1.536),
}

_FIVE = (*DATASETS[:4], "Beer")
# Printed for the validation set.
ANALYSES: dict[str, dict[str, dict[str, float]]] = {
    "viewpoints": {
        "3": _row(0.776, 0.728, 0.824, 0.961, 1.090, 0.560, 1.513),
        "5": _row(0.776, 0.716, 0.818, 0.962, 1.087, 0.552, 1.503),
        "7": _row(0.771, 0.715, 0.818, 0.958, 1.083, 0.564, 1.517),
        "9": _row(0.778, 0.726, 0.819, 0.950, 1.074, 0.562, 1.509),
    },
    "routing_iterations": {
        "1": dict(zip(_FIVE, (0.786, 0.733, 0.852, 0.976, 0.573), strict=True)),
        "2": dict(zip(_FIVE, (0.778, 0.720, 0.833, 0.963, 0.557), strict=True)),
        "3": dict(zip(_FIVE, (0.776, 0.716, 0.818, 0.962, 0.552), strict=True)),
        "4": dict(zip(_FIVE, (0.772, 0.727, 0.827, 0.954, 0.555), strict=True)),
    },
}


def dataset_of(corpus: str) -> str | None:
    """The paper's name for a corpus, if it is one of the paper's.

    >>> dataset_of("reviews_Musical_Instruments_5"), dataset_of("tripadvisor")
    ('Musical Instruments', None)
    """
    plain = re.sub("[^a-z0-9]", "", corpus.lower())
    return next((name for part, name in NAMES.items() if part in plain), None)


def published_mse(corpus: str, model: str) -> float | None:
    """
    >>> published_mse("musical-instruments", "carp-paper")
    0.773
    """
    return COMPARISON.get(model, {}).get(dataset_of(corpus) or "")


def published_analysis(corpus: str, setting: str, value: str) -> float | None:
    return ANALYSES.get(setting, {}).get(value, {}).get(dataset_of(corpus) or "")
