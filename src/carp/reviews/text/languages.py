"""Which languages texts are written in, and the stop words of each, by the lists of stopwords-iso.

A language is recognised by its stop words: no other words are so frequent. Negations are not stop words here, because
they carry sentiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from carp.reviews.text.tokens import tokenise

ENGLISH = "en"
LOOKED_AT = 3_000  # of the most frequent words
RECOGNISED = 0.03  # share of the words of a text that must be stop words of its first language
ANOTHER = 0.1  # the same for every further language
ENOUGH = 20  # stop words that must be seen before a language is believed in
NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "br": "Breton", "ca": "Catalan",
    "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician",
    "gu": "Gujarati", "ha": "Hausa", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "ku": "Kurdish",
    "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "mr": "Marathi", "ms": "Malay", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "so": "Somali", "st": "Sesotho", "sv": "Swedish", "sw": "Swahili", "th": "Thai",
    "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "yo": "Yoruba",
    "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip
_NEGATIONS = """
    nicht kein keine keinen keinem keiner keines nie niemals nichts niemand nirgends ohne kaum
    ne pas jamais rien aucun aucune sans non ni personne guère
    no nunca nada ni sin tampoco nadie ningún ninguna ninguno jamás
    non mai niente nulla senza né nessuno nessuna
    não nunca nada nem sem ninguém nenhum nenhuma
    niet geen nooit niets zonder niemand
    inte aldrig ingen inget inga utan ikke aldri intet uden uten ingenting
    nie bez nigdy nic nikt żaden ne nikdy nic žádný
    не ни нет никогда ничего никто без нельзя немає без ніколи
    nu niciodată nimic fără nem soha semmi nincs nélkül ei en et ole ilman
    değil yok hiç hiçbir olmadan tidak bukan jangan tanpa không chưa chẳng đừng
    لا لم لن ليس ليست غير بدون دون نه نیست بدون هیچ
    לא אין בלי שום אף
    नहीं न ना मत बिना कोई
    不 没 沒 没有 沒有 无 無 非 别 別 未 不是 不能
    ない なく なかっ ず ぬ ん
    안 못 없다 없는 없이 아니다 아닌 않다 않는
    ไม่ ไม่มี ไม่ได้ มิ
    όχι δεν μην χωρίς ποτέ τίποτα
"""


@cache
def negations() -> frozenset[str]:
    """Words that negate, in all languages together."""
    return frozenset(tokenise(_NEGATIONS)[0])


@cache
def _lists() -> dict[str, frozenset[str]]:
    import stopwordsiso

    return {code: frozenset(stopwordsiso.stopwords(code)) for code in stopwordsiso.langs() if code in NAMES}


@cache
def stop_words_of(code: str) -> frozenset[str]:
    """The stop words of a language other than English, cut into words as texts are, without negations."""
    words = (word for entry in _lists()[code] for word in tokenise(entry)[0])
    return frozenset(words) - negations()


def codes() -> list[str]:
    """The languages whose stop words are known."""
    return sorted(NAMES)


def recognise_languages(counts: Mapping[str, int], english: frozenset[str]) -> list[str]:
    """The languages that texts are written in, by how often each word occurs; English if none is recognised.

    >>> recognise_languages({"der": 9, "und": 8, "nicht": 3, "lampe": 2, "ist": 7}, frozenset({"the", "and", "is"}))
    ['de']
    """
    looked_at = dict(sorted(counts.items(), key=lambda entry: -entry[1])[:LOOKED_AT])
    total, found = sum(looked_at.values()), list[str]()
    lists = {code: english if code == ENGLISH else words for code, words in sorted(_lists().items())}
    while lists and total:
        shares = {code: _share(words, looked_at) / total for code, words in lists.items()}
        best = max(shares, key=lambda code: shares[code])
        if shares[best] * total < ENOUGH or shares[best] < (ANOTHER if found else RECOGNISED):
            break
        found.append(best)
        for word in lists.pop(best):
            looked_at.pop(word, None)
    return found or [ENGLISH]


def _share(words: Iterable[str], counts: Mapping[str, int]) -> int:
    return sum(counts.get(word, 0) for word in words)


def language_names(languages: Iterable[str]) -> str:
    """
    >>> language_names(["de", "fr"])
    'German, French'
    """
    return ", ".join(NAMES.get(code, code) for code in languages)
