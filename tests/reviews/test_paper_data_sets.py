"""`carp prepare` on small files of the exact shape of the paper's seven data sets: every field, packing and quirk."""

from __future__ import annotations

import gzip
import itertools
import json

import pytest

import carp
from carp.cli import entry

PEOPLE, THINGS = range(6), range(6)
SAID = "amber", "cloudy", "sweet", "bitter", "crisp", "smoky"


def pairs():
    return itertools.product(PEOPLE, THINGS)


def text(person, thing):
    return f'It\'s {SAID[person]} &amp; {SAID[thing]}, "no" complaints.'


def stars(person, thing):
    return 1 + (person + 2 * thing) % 5


def amazon_five_core():
    """reviews_Office_Products_5.json.gz: five more fields than are used, ratings with a decimal, some texts empty."""
    for person, thing in pairs():
        yield {
            "reviewerID": f"A32T2H8150OJL{person}",
            "asin": f"B00000JBL{thing}",
            "reviewerName": 'A. "Office" User',
            "helpful": [3, 4],
            "reviewText": "" if (person, thing) == (0, 0) else text(person, thing),
            "overall": float(stars(person, thing)),
            "summary": "A keeper",
            "unixReviewTime": 1094169600 + 86_400 * thing,
            "reviewTime": "09 3, 2004",
        }


def yelp(year_of):
    """review.json of the challenge: days in the earlier rounds, days and hours in the later ones."""
    for person, thing in pairs():
        yield {
            "review_id": f"VfBHSwC5Vz_pbFluy07i{person}{thing}",
            "user_id": f"cjpdDjZyprfyDG3RlkVG{person}",
            "business_id": f"uYHaNptLzDLoV_JZ_MuzU{thing}",
            "stars": stars(person, thing),
            "date": year_of(person, thing),
            "text": text(person, thing) + "\n\nWe will be back.",
            "useful": 0,
            "funny": 0,
            "cool": 0,
            "type": "review",
        }


def beer_blocks(overall, aspect):
    """ratebeer.txt and beeradvocate.txt: a block of lines a review, blank lines between."""
    for person, thing in pairs():
        told = {
            "beer/name": f"Brauerei Nr. {thing} Märzen",
            "beer/beerId": 47986 + thing,
            "beer/brewerId": 10325,
            "beer/ABV": "5.00" if thing else "-",
            "beer/style": "India Pale Ale &#40;IPA&#41;",
            "review/appearance": aspect,
            "review/aroma": aspect,
            "review/palate": aspect,
            "review/taste": aspect,
            "review/overall": overall(stars(person, thing)),
            "review/time": 1157587200 + thing,
            "review/profileName": f"hopdog{person}",
            "review/text": text(person, thing) + "\t\tOn tap: fine.",
        }
        yield "".join(f"{key}: {value}\n" for key, value in told.items()) + "\n"


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


SHAPES = {
    "Amazon 5-core": (gzip.compress(json_lines(amazon_five_core())), [], 35),
    "Yelp, days": (json_lines(yelp(lambda p, t: f"20{16 + (p + t) % 2}-05-28")), [], 36),
    "Yelp, hours": (json_lines(yelp(lambda p, t: f"20{16 + (p + t) % 2}-05-28 16:44:20")), [], 36),
    "RateBeer": ("".join(beer_blocks(lambda one: f"{4 * one}/20", "4/5")).encode("cp1252"), [], 36),
    "BeerAdvocate": ("".join(beer_blocks(lambda one: f"{one}.0", "2.5")).encode("utf-8"), [], 36),
}


def prepare(tmp_path, content, *options):
    file, folder = tmp_path / "reviews", tmp_path / "corpus"
    file.write_bytes(content)
    assert entry.main(["prepare", str(file), "--out", str(folder), *options]) == 0
    return carp.Corpus.load(folder)


@pytest.mark.parametrize("name", SHAPES)
def test_a_file_of_this_shape_is_recognised_and_read_whole(name, tmp_path):
    content, options, kept = SHAPES[name]
    corpus = prepare(tmp_path, content, "--as-in-paper", "--min-reviews", "1", *options)
    assert (len(corpus), len(corpus.users), len(corpus.items)) == (kept, 6, 6)
    assert {tuple(row) for row in zip(corpus.user, corpus.item, corpus.rating, strict=True)} == {
        (list(corpus.users).index(user), list(corpus.items).index(item), rating)
        for user, item, rating in expected(corpus, name)
    }
    assert corpus.time.all(), "every review has its day"
    assert all("complaints" in one for one in corpus.texts)


def expected(corpus, name):
    users, items = sorted(corpus.users), sorted(corpus.items)
    return [
        (users[person], items[thing], stars(person, thing))
        for person, thing in pairs()
        if not (name == "Amazon 5-core" and (person, thing) == (0, 0))
    ]


def test_yelp_is_filtered_to_2016_and_2017_by_its_dates(tmp_path):
    years = yelp(lambda person, thing: f"{2014 + (person + thing) % 5}-12-31 23:59:59")
    options = ["--since", "2016-01-01", "--until", "2017-12-31", "--min-reviews", "1"]
    corpus = prepare(tmp_path, json_lines(years), *options)
    wanted = [1 for person, thing in pairs() if (person + thing) % 5 in (2, 3)]
    assert len(corpus) == len(wanted)


def test_beers_of_the_later_files_are_refused_as_what_they_are(tmp_path, capsys):
    """ratebeer.json.gz has a Python dict a line."""
    told = {"beer/beerId": "63836", "review/overall": "13/20", "review/profileName": "hopdog", "review/text": "On tap"}
    (tmp_path / "ratebeer.json.gz").write_bytes(gzip.compress(f"{told!r}\n".encode() * 6))
    assert entry.main(["prepare", str(tmp_path / "ratebeer.json.gz"), "--out", str(tmp_path / "corpus")]) == 1
    assert "not valid JSON but a Python dict" in capsys.readouterr().err
