"""The numbers of the routing picture, from a trained model: `python docs/pictures/routing.py MODEL USER ITEM`.

Written with the model that the tutorial trains:

    python docs/pictures/routing.py model person-050 thing-017
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import carp
from carp.explain.question import as_batch, known_pair
from carp.models.carp import Carp, bi_agreement
from carp.models.layers import squash

NUMBERS = Path(__file__).with_name("routing.json")


def routing_numbers(folder: str, user: str, item: str) -> dict[str, Any]:
    recommender = carp.load(folder, device="cpu")
    model, fitted = recommender.model, recommender.fitted_corpus
    assert isinstance(model, Carp)
    numbers = (names.index()[name] for names, name in ((fitted.users, user), (fitted.items, item)))
    batch = as_batch(fitted, known_pair(fitted, *numbers), torch.device("cpu"))
    with torch.no_grad():
        units = model.pair(
            model.encode_users(batch.user_words, batch.user_reviews),
            model.encode_items(batch.item_words, batch.item_reviews),
        )
        votes = torch.einsum("bug,sugk->bsuk", units, model.vote_weight)
        rounds = route(votes, model.config.routing_iterations)
        assert torch.allclose(torch.tensor(rounds[-1]["coupling"]), model.route(votes)[0][0], atol=1e-4)
    why = recommender.explain(user, item)
    return {
        "command": f"python docs/pictures/routing.py {folder} {user} {item}",
        "user": user,
        "item": item,
        "viewpoints": model.config.viewpoints,
        "rounds": rounds,
        "units": [[one.viewpoint.index, one.aspect.index, one.sentiment] for one in why.units],
        "phrases": [[one.viewpoint.sentences[0].text, one.aspect.sentences[0].text] for one in why.units],
    }


def route(votes: Tensor, iterations: int) -> list[dict[str, Any]]:
    """Algorithm 1 with everything that is usually forgotten between the rounds."""
    agreement = votes.new_zeros(votes.shape[:3])
    rounds = []
    for _ in range(iterations):
        coupling = bi_agreement(agreement)
        capsules = squash((coupling.unsqueeze(-1) * votes).sum(2))
        shown = {"agreement": agreement, "coupling": coupling, "lengths": capsules.norm(dim=-1)}
        rounds.append({name: _rounded(tensor[0]) for name, tensor in shown.items()})
        agreement = agreement + (votes * capsules.unsqueeze(2)).sum(-1)
    return rounds


def _rounded(tensor: Tensor) -> Any:
    values = tensor.double().tolist()
    return [[round(v, 6) for v in row] if isinstance(row, list) else round(row, 6) for row in values]


if __name__ == "__main__":
    found = routing_numbers(*sys.argv[1:4])
    NUMBERS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
