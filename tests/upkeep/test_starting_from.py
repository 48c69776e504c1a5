"""Training that starts from an earlier model: its weights, by the names of people, things and words."""

from __future__ import annotations

import pytest
import torch

import carp
from carp.cli import entry
from carp.errors import UsageError

SMALL = {"epochs": 1, "dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "min_reviews": 1}


@pytest.fixture(scope="module")
def corpus(frame):
    return carp.build_corpus(carp.read_reviews(frame), min_reviews=1)


def factors(recommender):
    return recommender.model.state_dict()["user_factors"]


def weights_at_the_start(recommender, corpus, **options):
    """The weights before the first step: a rate of zero never moves them."""
    frozen = carp.Recommender(**{**recommender.get_params(), "learning_rate": 0.0})
    return frozen.fit(corpus, progress=False, **options)


@pytest.mark.parametrize("name", ["carp", "mf"])
def test_what_both_know_starts_with_the_earlier_weights(trained, corpus, frame, name, single_thread):
    settings = SMALL if name == "carp" else {"epochs": 1, "min_reviews": 1}
    earlier = carp.Recommender(name, device="cpu", **settings).fit(carp.read_reviews(frame[:180]), progress=False)
    later = weights_at_the_start(earlier, corpus, start_from=earlier)
    if name == "carp":
        words = earlier.fitted_corpus.vocabulary.words
        for place, word in enumerate(later.fitted_corpus.vocabulary.words, start=1):
            if word in words:
                row = earlier.model.state_dict()["embedding.weight"][1 + words.index(word)]
                assert torch.equal(later.model.state_dict()["embedding.weight"][place], row)
        assert torch.equal(later.model.vote_weight, earlier.model.vote_weight)
    else:
        for user in earlier.fitted_corpus.users:
            old, new = (rec.fitted_corpus.users.index()[user] for rec in (earlier, later))
            assert torch.equal(factors(later)[new], factors(earlier)[old])
    assert later.facts["seen_before"] > 0


def test_other_shapes_other_models_and_closed_forms_are_refused(trained, corpus):
    earlier = carp.load(trained, device="cpu")
    with pytest.raises(UsageError, match=r"is .* in the earlier model and"):
        carp.Recommender("carp", device="cpu", **SMALL).fit(corpus, start_from=earlier, progress=False)
    with pytest.raises(UsageError, match="the earlier model is carp, and this one is mf"):
        carp.Recommender("mf", device="cpu").fit(corpus, start_from=earlier, progress=False)
    with pytest.raises(UsageError, match="closed form"):
        carp.Recommender("bias", device="cpu").fit(corpus, start_from=earlier, progress=False)


def test_the_command_takes_model_and_settings_from_the_earlier_one(trained, corpus, tmp_path, capsys):
    corpus.save(tmp_path / "corpus")
    words = ["train", str(tmp_path / "corpus"), "--out", str(tmp_path / "model"), "--device", "cpu"]
    assert entry.main([*words, "--from", str(trained), "--set", "epochs=1"]) == 0
    assert "errors on them look better than they are" in capsys.readouterr().err
    assert carp.load(tmp_path / "model").config.latent_size == 6
    assert entry.main([*words, "--from", str(trained), "--model", "mf", "--overwrite"]) == 2
    assert "the earlier model is carp" in capsys.readouterr().err
