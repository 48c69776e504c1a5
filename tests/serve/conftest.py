"""Small fitted models, and the service for them without a socket."""

from __future__ import annotations

import polars
import pytest

import carp

STRANGE_IDS = {  # names that a careless address or page would trip over
    "person-001": "ann/../b ü",
    "person-002": "<script>alert(1)</script>",
    "person-003": "per cent%2Fplus+&?#=",
    "thing-001": "a/b/profile",
    "thing-002": "„Trommel“ 太鼓 ☃",
    "thing-003": '"><img src=x onerror=alert(1)>',
}
MARKUP = "<b onmouseover=alert(1)>Loud</b> & clear </script> it is."


def fitted(model, **settings):
    import torch

    torch.set_num_threads(1)
    frame = carp.make_shop(people=24, things=10, reviews_per_person=8, seed=4).frame()
    renamed = frame.with_columns(
        polars.col("user").replace(STRANGE_IDS), polars.col("item").replace(STRANGE_IDS)
    ).with_columns(
        polars.when(polars.col("user") == STRANGE_IDS["person-001"])
        .then(polars.concat_str([polars.col("text"), polars.lit(" " + MARKUP)]))
        .otherwise(polars.col("text"))
        .alias("text")
    )
    made = carp.Recommender(model, seed=0, device="cpu", min_reviews=1, **settings)
    return made.fit(carp.read_reviews(renamed), progress=False)


@pytest.fixture(scope="session")
def recommender():
    return fitted("carp", epochs=2, dimension=12, filters=8, latent_size=6, viewpoints=3, variant="calibrated")


@pytest.fixture(scope="session")
def bundle(recommender, saved):
    return saved(recommender)


@pytest.fixture(scope="session")
def client(recommender):
    from starlette import testclient

    from carp.serve.routes import make_app

    return testclient.TestClient(make_app(recommender), raise_server_exceptions=False)


@pytest.fixture(scope="session")
def client_of():
    """The service of another model by its name."""
    from starlette import testclient

    from carp.serve.routes import make_app

    made = {}

    def make(model, **settings):
        if model not in made:
            made[model] = testclient.TestClient(make_app(fitted(model, **settings)), raise_server_exceptions=False)
        return made[model]

    return make
