"""What each setting does, plainly where the comment in its source is for people who know the paper."""

from __future__ import annotations

from carp.cli.written_fields import WrittenField, fields_of
from carp.models.carp import CarpConfig
from carp.models.meeting import MeetingConfig

ENOUGH_WORDS = 4

PLAIN = {
    # training
    "learning_rate": "how large the steps of training are; lower it if training diverges",
    "batch_size": "pairs that are trained on at once; fewer need less memory",
    "epochs": "at most so many times through all training pairs",
    "decay": "how long RMSprop remembers earlier steps, from 0 to 1",
    "optimizer_epsilon": "a small number that keeps RMSprop from dividing by zero",
    "weight_decay": "how strongly large weights are held back; 0 is not at all",
    # text
    "vocabulary_size": "at most so many words, those in most reviews first",
    "max_words": "at most so many words of the reviews of one person or thing are read",
    # fitting
    "target_reviews": "whether a review is left out when its own rating is predicted in training; the paper keeps it",
    "min_reviews": "people and things with fewer reviews are left out, where reviews and no corpus are given",
    # of several models
    "dimension": "numbers that stand for each word",
    "hidden_size": "numbers in between, of each direction or layer",
    "window": "words that are read together",
    "filters": "features that are read from each window",
    "latent_size": "numbers that stand for each person, thing or viewpoint",
    "penalty": "how strongly large weights are held back",
    "user_penalty": "how strongly the numbers of people are held back",
    "item_penalty": "how strongly the numbers of things are held back",
    "aspects": "how many aspects are told apart",
    "layers": "how often the words of a review read each other",
    "factors": "numbers by which two features are held against each other",
    "pointers": "reviews that may be pointed at, one after the other",
    "pull": "how strongly the ratings' numbers are drawn to those of the texts",
    "transform_layers": "layers that turn what was read into the review to expect",
    "noise_weight": "how much words that are not there count when a word is predicted",
    "noise_words": "words that are drawn for that, for a whole batch",
    "word_weight": "how much predicting words counts in training",
    "vector_steps": "steps by which the numbers of a review are fitted to it, from the mean of its words",
    "text_weight": "how much the words of reviews count in training beside the ratings",
    "network_penalty": "how strongly large weights of the network that reads are held back",
    "rating_loss": "whether training counts the square of a miss or the miss itself",
    "dropout": "share of what was read that is hidden at random in training",
    "directions": "numbers that stand for each text",
}
CARP = {
    "variant": "which form of CARP: the paper's, the released code's, or the calibrated one",
    "dimension": "numbers that stand for each word",
    "window": "words that are read together",
    "filters": "features that are read from each window",
    "latent_size": "numbers that stand for each viewpoint and aspect",
    "viewpoints": "viewpoints of each person, and as many aspects of each thing",
    "routing_iterations": "rounds in which viewpoints and aspects find each other",
    "liked_above": "ratings above this count as liked; the middle of the range if not given",
    "margin": "how far apart liking and disliking are pushed in training, from 0 to 1",
    "rating_weight": "how much the rating counts in training beside liking and disliking, from 0 to 1",
    "mutual_exclusion": "whether a thing cannot be liked and disliked at once in training (Equation 13 instead of 12)",
    "dropout": "share of what was read that is hidden at random in training",
    "dropout_on": "what dropout hides: features that were read, or weights",
    "projection": "whether all viewpoints read words through the same matrix or each through its own",
    "attention": "how words share the attention of a viewpoint",
    "padding_attends": "whether the empty places of a short document take part in the attention",
    "logic_unit": "how a viewpoint and an aspect are joined: difference or product first, or both and themselves",
    "highway": "which way the gate over the capsules opens; the released code has it reversed",
    "hinge": "whether the loss of liking and disliking grows with the miss or with its square",
    "biases": "how the averages of people and things enter: learned, tuned before, or without the pair itself",
    "embedding_start": "from which numbers the words begin",
    "filter_bias": "from which number the bias of each filter begins",
}
MEETING = {
    "bigrams": "at most so many pairs of neighbouring words, those in most reviews first",
    "min_bigram_reviews": "a pair of words must be in as many training reviews",
    "learn_from": "which ratings are data: those for training alone, or those for validation too",
    "rounds": "rounds in which it is learned how strong each part of the sum is",
    "probes": "random vectors by which each round estimates that; more are slower and steadier",
    "rarity": "how much rare words count beside frequent ones; chosen on held-out training pairs if not given",
    "name_weight": "how much the name of a thing counts beside its text, where it has one",
    "own_noise": "whether some people's and things' ratings may owe more to chance than those of others",
    "curved": "whether a curve turns sums into ratings, which crowd at an end of the scale",
    "own_width": "whether each person may use more or less of the scale than others do",
    "from_mean": "whether texts are seen from their mean; chosen on held-out training pairs if not given",
}


def meanings_of(kind: type) -> dict[str, str]:
    """A line for each setting of a configuration."""
    own = {CarpConfig: CARP, MeetingConfig: MEETING}.get(kind, {})
    return {one.name: own.get(one.name) or _clearer(one) for one in fields_of(kind)}


def _clearer(one: WrittenField) -> str:
    """The comment of a setting, unless it is no sentence and there is a plain one."""
    return one.comment if len(one.comment.split()) >= ENOUGH_WORDS else PLAIN.get(one.name, one.comment)
