"""Words and sentences know their characters; stop words spare sentiment; the vocabulary sees training alone."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carp.errors import DamagedError, InputError
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.corpora.vocabulary_choice import build_vocabulary
from carp.reviews.text import lexicon, tokens
from carp.reviews.text.scripts import is_emoji
from carp.reviews.text.sentences import LONGEST_SENTENCE, sentences
from carp.reviews.text.stop_words import NEGATIONS, read_stop_words, stop_words
from carp.reviews.text.tokens import has_word, join_tokens, tokenise, tokenise_many
from carp.reviews.text.vocabulary import Vocabulary

review_texts = st.text(
    alphabet=st.one_of(st.sampled_from("aI'’.!?;, \n_09Éİßﬁ½²中ﬀ…\u0307\u2028"), st.characters(codec="utf-8")),
    max_size=400,
)


def pieces(text):
    return [text[start:end] for start, end in sentences(text)]


def corpus_of(texts):
    tokens = tokenise_many(texts)
    nothing = np.zeros(len(texts), np.int32)
    return Corpus(
        users=StringColumn.from_strings(["u"]),
        items=StringColumn.from_strings(["i"]),
        words=StringColumn.from_strings(tokens.words),
        texts=StringColumn.from_strings(texts),
        user=nothing,
        item=nothing,
        rating=nothing.astype(np.float32),
        time=nothing.astype(np.int64),
        split=None,
        token_offsets=tokens.offsets,
        tokens=tokens.tokens,
        token_starts=tokens.starts,
        token_lengths=tokens.lengths,
        facts={"levels": 5},
    )


@given(review_texts | st.text(alphabet=st.sampled_from("aB1 .,!?\n'’_\u0307\u200d中ก😀é"), max_size=30))
def test_a_text_has_a_word_exactly_where_cutting_it_finds_one(text):
    assert has_word(text) == bool(tokenise(text)[0])


def test_a_word_is_found_where_it_is_too_long_or_stands_beside_other_scripts():
    texts = ["a" * 10_000, "中a", "a\u0307", "ok", " ok", "no.", "1 2!", "é", "_a_", "a" * 20, "a" * 21, "\n"]
    assert [has_word(text) for text in texts] == [bool(tokenise(text)[0]) for text in texts]


@given(review_texts)
def test_offsets_slice_each_word_out_of_the_original_text(text):
    words, starts, ends = tokenise(text)
    assert len(words) == len(starts) == len(ends)
    assert [lexicon.as_word(text[s:e]) for s, e in zip(starts, ends, strict=True)] == words
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    written = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert all(len(word) <= 40 and (any(map(str.isalpha, word)) or is_emoji(word)) for word in written)


def slow_words(text):
    """Character by character: letters and digits go on, an apostrophe between two of them too, all else ends a word."""
    runs, previous = [""], ""
    for place, character in enumerate(text):
        inner = character in "'’" and previous.isalnum() and text[place + 1 : place + 2].isalnum()
        if character.isalnum() or inner:
            runs[-1] += character
        else:
            runs.append("")
        previous = character
    lowered = ((r, r.lower().replace("’", "'").replace("i̇", "i")) for r in runs)  # the small İ is an i
    return [word for r, word in lowered if len(r) <= 40 and any(map(str.isalpha, r))]


@given(st.text(alphabet=st.one_of(st.sampled_from("aI'’.!?;, \n_09Éßﬁ½²ﬀ…"), st.characters(max_codepoint=0x2FF))))
def test_words_of_latin_letters_equal_a_slow_form(text):
    assert tokenise(text)[0] == slow_words(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't worry, it’s FINE!", ["don't", "worry", "it's", "fine"]),
        ("'quoted' rock'n'roll dogs'", ["quoted", "rock'n'roll", "dogs"]),
        ("snake_case re-use a/b", ["snake", "case", "re", "use", "a", "b"]),
        ("100 watts, 9v, 70's, 5'10, 3½", ["watts", "9v", "70's"]),
        ("x" * 40 + " " + "y" * 41, ["x" * 40]),
        ("Große Röhre 中文", ["große", "röhre", "中文"]),
        ("he said &#34;wow&#34;", ["he", "said", "wow"]),
        ("", []),
    ],
)
def test_words_are_cut_as_promised(text, words):
    assert tokenise(text)[0] == words


def test_offsets_survive_letters_that_grow_when_lower_cased():
    words, starts, ends = tokenise("İİİ amp")
    assert words[1] == "amp"
    assert (starts[1], ends[1]) == (4, 7)


def expect_same_as_one_by_one(texts):
    together = tokenise_many(texts)
    for number, text in enumerate(texts):
        words, starts, ends = tokenise(text)
        stretch = slice(together.offsets[number], together.offsets[number + 1])
        assert [together.words[token] for token in together.tokens[stretch]] == words
        assert together.starts[stretch].tolist() == starts
        assert (together.starts[stretch] + together.lengths[stretch]).tolist() == ends
    appeared = list(dict.fromkeys(word for text in texts for word in tokenise(text)[0]))
    assert together.words == appeared
    return together


@given(st.lists(review_texts, max_size=8), st.integers(0, 8))
def test_columns_of_many_texts_say_the_same_as_one_by_one_and_chunks_join(texts, cut):
    together = expect_same_as_one_by_one(texts)
    joined = join_tokens([tokenise_many(texts[:cut]), tokenise_many(texts[cut:])])
    assert joined.words == together.words
    assert len(set(joined.words)) == len(joined.words)
    for one, other in zip(joined[1:], together[1:], strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@given(review_texts)
def test_every_visible_character_lies_in_exactly_one_sentence(text):
    spans = sentences(text)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    inside = [place for start, end in spans for place in range(start, end)]
    assert "".join(text[place] for place in inside if not text[place].isspace()) == "".join(text.split())
    for start, end in spans:
        assert text[start:end] == text[start:end].strip() != ""
        assert end - start <= LONGEST_SENTENCE
        assert "\n" not in text[start:end]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It works. now it does! Really?", ["It works.", "now it does!", "Really?"]),
        ("quite affordable.I did not", ["quite affordable.", "I did not"]),
        ("It is 2.5 lbs. and $9.95", ["It is 2.5 lbs. and $9.95"]),
        ("see example.com or e.g. this, i.e. that vs. it", ["see example.com or e.g. this, i.e. that vs. it"]),
        ("Dr. Smith, Mr. Jones, approx. 5 oz. each", ["Dr. Smith, Mr. Jones, approx. 5 oz. each"]),
        ("Picks, etc. are there. Picks, etc. Then more", ["Picks, etc. are there.", "Picks, etc.", "Then more"]),
        ("well... it works... Great", ["well... it works...", "Great"]),
        ("Made in the U.S.A and loud", ["Made in the U.S.A and loud"]),
        ("tuned to low E.The next", ["tuned to low E.", "The next"]),
        ('He said "wow." Then left', ['He said "wow."', "Then left"]),
        ("one line\nanother\r\n\r\nthird", ["one line", "another", "third"]),
        ("  \n ", []),
        ("最高。買う！", ["最高。", "買う！"]),
    ],
)
def test_sentences_end_where_readers_see_them_end(text, expected):
    assert pieces(text) == expected


def test_long_sentences_are_cut_at_semicolons_commas_then_spaces():
    long = "word " * 40 + "so; " + "word " * 40 + "well, " + "word " * 70
    found = pieces(long)
    assert found[0].endswith("so;")
    assert found[1].endswith("well,")
    assert all(piece.split()[-1] == "word" for piece in found[2:])
    assert " ".join(found).split() == long.split()


def test_a_text_of_a_megabyte_without_marks_is_cut_into_pieces_that_can_be_shown():
    spans = sentences("word " * 200_000)
    assert len(spans) > 3000
    assert max(end - start for start, end in spans) <= LONGEST_SENTENCE


def test_stop_words_are_function_words_and_spare_sentiment():
    words = stop_words()
    assert 550 <= len(words) <= 700
    assert {"the", "i'm", "get", "seems", "second", "z", "of"} <= words
    assert not words & NEGATIONS
    judgements = "good great well better best worse worst bad like love hate nice poor easy cheap perfect recommend"
    assert not words & set(judgements.split())
    assert all(tokenise(word)[0] == [word] for word in words)


def test_a_users_own_stop_words_are_read(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("# guitar words\nGuitar amp\nisn’t\n", encoding="utf-8")
    assert read_stop_words(own) == {"guitar", "amp", "isn't"}
    assert read_stop_words("none") == frozenset()
    assert read_stop_words("english") == stop_words()
    with pytest.raises(InputError, match="stop words cannot be read"):
        read_stop_words(tmp_path / "absent.txt")


def slow_vocabulary(texts, size, stopped, share):
    total, documents = Counter(), Counter()
    for text in texts:
        words = tokenise(text)[0]
        total.update(words)
        documents.update(set(words))
    kept = [w for w in total if w not in stopped and documents[w] <= share * len(texts)]
    kept.sort(key=lambda w: (-(total[w] * math.log(len(texts) / documents[w])), w))
    return kept[:size]


word_lists = st.lists(st.sampled_from(["amp", "tone", "the", "fret", "neck", "i", "hum", "not", "pick"]), max_size=12)


@given(
    st.lists(word_lists.map(" ".join), min_size=2, max_size=12),
    st.integers(1, 8),
    st.sampled_from([0.3, 0.5, 1.0]),
    st.data(),
)
def test_vocabulary_equals_a_slow_form_on_the_chosen_records(texts, size, share, data):
    chosen = data.draw(st.lists(st.sampled_from(range(len(texts))), min_size=1, unique=True).map(sorted))
    expected = slow_vocabulary([texts[r] for r in chosen], size, stop_words(), share)
    corpus = corpus_of(texts)
    if not expected:
        with pytest.raises(InputError, match="no word is left"):
            build_vocabulary(corpus, np.array(chosen), size=size, max_document_share=share)
        return
    vocabulary = build_vocabulary(corpus, np.array(chosen), size=size, max_document_share=share)
    assert vocabulary.words == expected
    assert {corpus.words[w]: i for w, i in enumerate(vocabulary.model_ids.tolist()) if i} == {
        word: place for place, word in enumerate(expected, start=1)
    }


def test_a_corpus_of_stop_words_says_how_training_is_told_to_keep_them():
    corpus = corpus_of(["the of", "and it", "was a"])
    with pytest.raises(InputError, match="stop_words=none"):
        build_vocabulary(corpus, np.arange(3))
    assert len(build_vocabulary(corpus, np.arange(3), stop_words=read_stop_words("none"))) == 6


def test_other_records_never_influence_the_vocabulary():
    training = ["warm amp tone", "warm neck", "buzz and hum", "hum hum tone"]
    one = build_vocabulary(corpus_of([*training, "zebra zebra amp"]), np.arange(4))
    other = build_vocabulary(corpus_of(["hum noise", *training]), np.arange(1, 5))
    assert one.words == other.words
    assert "zebra" not in one.words


def test_encoding_a_pasted_text_gives_ids_and_characters_of_known_words():
    vocabulary = build_vocabulary(corpus_of(["warm amp", "cold amp", "buzz"]), np.arange(3), max_document_share=1)
    text = "A WARM, unheard-of Amp"
    ids, starts, ends = vocabulary.encode(text)
    assert [vocabulary.words[i - 1] for i in ids] == ["warm", "amp"]
    assert [text[s:e] for s, e in zip(starts, ends, strict=True)] == ["WARM", "Amp"]


def test_vocabulary_comes_back_from_its_data():
    corpus = corpus_of(["warm amp", "cold amp", "buzz"])
    vocabulary = build_vocabulary(corpus, np.arange(3))
    again = Vocabulary.from_json(vocabulary.to_json(), corpus.words)
    assert again.words == vocabulary.words
    np.testing.assert_array_equal(again.model_ids, vocabulary.model_ids)
    with pytest.raises(DamagedError):
        Vocabulary.from_json({"words": [1]})


# ---- many texts at once, by their bytes


def test_every_character_is_judged_alike_by_both_tokenisers():
    everything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(everything[first : first + 500]) for first in range(0, len(everything), 500)]
    texts += [f"a{character}b" for character in everything[::37]]
    expect_same_as_one_by_one(texts)


def test_words_of_every_size_around_the_edges_of_the_tables_are_found():
    sizes = [1, 7, 8, 9, 15, 16, 17, 39, 40, 41, 200]
    texts = [f"{'x' * (size - 1)}{last} {'É' * size} {'7' * size}" for size in sizes for last in "abA1"]
    expect_same_as_one_by_one([*texts, *reversed(texts)])


@pytest.mark.parametrize(("name", "value"), [("BLOCK", 10), ("GROUP", 60), ("MOST_SURFACES", 3)])
def test_where_texts_are_parted_and_when_words_are_forgotten_changes_nothing(monkeypatch, name, value):
    texts = [f"word{number % 7} It’s número{number} sehr schön, isn't it?" for number in range(60)]
    expected = tokenise_many(texts)
    monkeypatch.setattr(tokens, name, value)
    found = tokenise_many(texts)
    assert found.words == expected.words
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(one, other)
    expect_same_as_one_by_one(texts)


@pytest.mark.parametrize(("bits", "rounds"), [(3, 64), (6, 2), (10, 0)])
def test_words_that_collide_are_still_told_apart(monkeypatch, bits, rounds):
    monkeypatch.setattr(lexicon, "SLOT_BITS", bits)
    monkeypatch.setattr(lexicon, "ROUNDS", rounds)
    monkeypatch.setitem(tokens._lexicons, False, lexicon.Lexicon())
    texts = [f"w{number} longerword{number} w{number // 2}" for number in range(200)]
    expect_same_as_one_by_one([*texts, *texts])


def test_words_that_all_want_one_slot_do_not_take_forever(monkeypatch):
    monkeypatch.setattr(lexicon, "_SPREAD", (np.uint64(0), np.uint64(0)))
    monkeypatch.setitem(tokens._lexicons, False, lexicon.Lexicon())
    rounds = []
    take_free = lexicon._Table._take_free
    monkeypatch.setattr(lexicon._Table, "_take_free", lambda *given: rounds.append(0) or take_free(*given))
    expect_same_as_one_by_one([" ".join(f"{number:x}z" for number in range(5_000))])
    assert len(rounds) == lexicon.ROUNDS


def test_half_a_surrogate_pair_parts_words_and_takes_one_place():
    expect_same_as_one_by_one(["a\ud800b c", "\udfff", "x\udc00"])


def test_no_texts_and_empty_texts_have_no_words():
    assert tokenise_many([]).offsets.tolist() == [0]
    found = tokenise_many(["", " ", "_"])
    assert found.offsets.tolist() == [0, 0, 0, 0]
    assert found.words == []
