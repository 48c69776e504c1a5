"""A shop in any language gets its own words, sentences, stop words and explanations."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

import carp
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.markup import without_markup
from carp.reviews.text.languages import codes, language_names, negations, recognise_languages, stop_words_of
from carp.reviews.text.sentences import sentences
from carp.reviews.text.stop_words import read_stop_words, stop_words
from carp.reviews.text.tokens import tokenise, tokenise_bytes, tokenise_many

# What people write about headphones: praise and complaints about sound, price, comfort and how long they last.
REVIEWS = json.loads((Path(__file__).parent / "headphones.json").read_text("utf-8"))
SOME_WORDS = {
    "de": ("großartig", "höhen", "gebrochen"),
    "fr": ("magnifique", "cassé", "très"),
    "es": ("magnífico", "dañado", "cable"),
    "ru": ("отличный", "тяжёлые", "доставка"),
    "ar": ("رائع", "السعر", "ثقيلة"),
    "hi": ("आवाज़", "कीमत", "कमज़ोर"),
    "th": ("เสียง", "ราคา", "หนัก"),
    "zh": ("音质", "价格", "耳朵"),
    "ja": ("音質", "値段", "ケーブル"),
    "ko": ("소리가", "가격에", "배송은"),
}


def pieces(text):
    return [text[start:end] for start, end in sentences(text)]


def said(language):
    """The sentences of a language; Thai writes none, so its clauses, which spaces divide."""
    return REVIEWS[language].split() if language == "th" else pieces(REVIEWS[language])


def shop(language, people=14, things=6):
    """A shop whose people say some of these sentences, with ratings that go with the things."""
    chance, found = np.random.default_rng(3), said(language)
    for person in range(people):
        for thing in chance.choice(things, 5, replace=False).tolist():
            chosen = chance.choice(len(found), 3, replace=False)
            text = " ".join(found[place] for place in chosen)
            yield {"user": f"p{person}", "item": f"t{thing}", "rating": 1 + (thing + person) % 5, "text": text}


@pytest.mark.parametrize("language", REVIEWS)
def test_each_language_goes_from_a_file_to_an_explanation_in_its_own_words(tmp_path, language):
    path = tmp_path / "reviews.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in shop(language)))
    corpus = build_corpus(read_reviews(path), min_reviews=1)
    assert corpus.facts["languages"] == [language]
    words = set(corpus.words)
    assert set(SOME_WORDS[language]) <= words
    rec = carp.Recommender("carp", epochs=1, latent_size=4, dimension=16, max_words=60).fit(corpus, progress=False)
    vocabulary = set(rec.fitted_corpus.vocabulary.words)
    assert set(SOME_WORDS[language]) & vocabulary
    assert not vocabulary & stop_words_of(language)
    why = rec.explain("p0", "t1")
    shown = [one for unit in why.units for side in (unit.viewpoint, unit.aspect) for one in side.sentences]
    assert shown
    assert all(one.text in REVIEWS[language] or language == "th" for one in shown)
    marked = {word for one in shown for mark in one.marks for word in tokenise(one.text[mark.start : mark.end])[0]}
    assert marked & vocabulary
    assert str(why)


def test_a_decomposed_accent_and_a_wide_letter_are_the_letters_they_stand_for():
    for text in ("Café crème brûlée", "naïve Übergröße", "ệ phở"):
        taken_apart = unicodedata.normalize("NFD", text)
        assert tokenise(taken_apart)[0] == tokenise(text)[0] == text.lower().split()
    assert tokenise("Ｇｏｏｄ ﾗｼﾞｵ İYİ")[0] == ["good", "ラジオ", "iyi"]


def test_emoji_are_words_whatever_their_tone():
    words, starts, ends = tokenise("Love it 😍👍🏽! ❤️ :-) 🇩🇪 10/10 ★★ ©")
    assert words == ["love", "it", "😍", "👍", "❤", "🇩🇪", "★", "★"]
    text = "Love it 😍👍🏽! ❤️"
    assert [text[start:end] for start, end in zip(starts[:5], ends[:5], strict=True)] == [
        "Love",
        "it",
        "😍",
        "👍🏽",
        "❤️",
    ]


def test_mixed_languages_in_one_review_are_each_cut_by_their_own_rules():
    assert tokenise("Die 音質がとても良い headphones, เสียงดีมาก!")[0] == [
        *("die", "音質", "が", "とても", "良い", "headphones"),
        *("เสียง", "ดี", "มาก"),
    ]
    assert tokenise("用iPhone听音乐很好")[0] == ["用", "iphone", "听", "音乐", "很好"]
    both = " ".join([REVIEWS["de"], REVIEWS["fr"]])
    counts = {word: tokenise(both)[0].count(word) for word in set(tokenise(both)[0])}
    assert sorted(recognise_languages(counts, stop_words())) == ["de", "fr"]


def test_letters_of_another_script_inside_an_english_word_leave_it_whole():
    damaged = "I didn鈥檛 like it and it鈥檚 not what I wanted at all"  # UTF-8 that was read as GBK
    assert tokenise(damaged)[0] == damaged.lower().split()


def test_many_texts_of_all_languages_together_are_cut_as_one_by_one():
    texts = [*REVIEWS.values(), "plain", "", "Ünïcode’s fine", *(said("ja")), "a\ud83d"]
    together = tokenise_many([text for text in texts if "\ud83d" not in text])
    found = iter(together.words[token] for token in together.tokens)
    for text in texts[:-1]:
        assert [next(found) for _ in tokenise(text)[0]] == tokenise(text)[0]
    assert next(found, None) is None


def test_plain_words_are_runs_of_letters_whatever_the_script():
    assert tokenise_bytes(["音質が良い cafe\u0301".encode()], plain=True).words == ["音質が良い", "cafe"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("音が良い。「最高！」と思う。本当？", ["音が良い。", "「最高！」", "と思う。", "本当？"]),
        ("आवाज़ साफ़ है। कीमत ठीक है।", ["आवाज़ साफ़ है।", "कीमत ठीक है।"]),
        ("هل الصوت قوي؟ نعم. جيد جدا", ["هل الصوت قوي؟", "نعم.", "جيد جدا"]),
        ("Она дорогая. Но т.е. хорошая!", ["Она дорогая.", "Но т.е. хорошая!"]),
    ],
)
def test_sentences_end_at_the_marks_of_their_script(text, parts):
    assert pieces(text) == parts


def test_long_sentences_without_spaces_are_cut_at_their_commas():
    text = "音質がとても良くて、" * 60
    assert all(len(part) <= 300 and part.endswith("、") for part in pieces(text))
    assert "".join(pieces(text)) == text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("Salt &amp; pepper", "Salt & pepper"),
        ("5&amp;#34; &amp;amp;amp; plug", '5" & plug'),
        ("Good.<br /><br/>Bad.", "Good.\n\nBad."),
        ('See <a href="http://x">here</a> <b>now</b>', "See here now"),
        ("I <3 it, 2 < 3 > 1 and <unknown>", "I <3 it, 2 < 3 > 1 and <unknown>"),
        ("x<script>alert(1)</script>y<!-- no -->z", "xyz"),
        ("&lt;p&gt;Fine&lt;/p&gt;", "\nFine\n"),
    ],
)
def test_markup_is_removed_and_what_only_looks_like_it_stays(written, text):
    assert without_markup(written) == text


def test_stop_words_can_be_chosen_by_the_code_of_a_language(tmp_path):
    german = read_stop_words("de")
    assert {"und", "der", "ist"} <= german
    assert not german & negations()
    assert read_stop_words("de,fr") == german | stop_words_of("fr")
    assert read_stop_words("auto", ["de"]) == german
    assert read_stop_words("auto") == read_stop_words("english") == stop_words()
    with pytest.raises(carp.CarpError, match="the code of a language"):
        read_stop_words("klingon")
    assert language_names(["ja", "ar"]) == "Japanese, Arabic"
    assert len(codes()) > 50


def test_texts_of_no_known_language_count_as_english():
    assert recognise_languages({"xyzzy": 100, "plugh": 50}, stop_words()) == ["en"]
    assert recognise_languages({}, stop_words()) == ["en"]
