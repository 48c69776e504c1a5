"""Files about things are read whatever shape they have, every record is accounted for, and bad ones are named."""

from __future__ import annotations

import gzip
import json

import pandas
import polars
import pytest

from carp.errors import InputError, UsageError
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.corpora.preparation import prepare_corpus
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.item_fields import NO_PICTURE, NO_TITLE
from carp.reviews.sources.item_files import read_items
from carp.reviews.sources.item_records import ItemText
from carp.reviews.sources.request import SourceRequest

AMAZON_2014 = (
    "{'asin': 'B1', 'salesRank': {'Music': 349432}, 'imUrl': 'http://images.example/51A.jpg', 'categories': "
    "[['Music', 'Amps'], ['Music', 'Tubes']], 'title': 'Player\\'s \"Amp\"', 'description': 'Loud.'}\n"
    "{'asin': 'B2', 'categories': [['Music']]}\n"
)
AMAZON_2018 = [
    {
        "category": ["Music", "Amps"],
        "tech1": "",
        "description": ["Loud.", "", "Warm &amp; round."],
        "title": "Player's &quot;Amp&quot;",
        "imageURL": ["https://images.example/a_SR38,50_.jpg"],
        "imageURLHighRes": ["https://images.example/a.jpg"],
        "asin": "B1",
    },
    {"category": [], "description": [], "title": "Pick", "imageURL": [], "imageURLHighRes": [], "asin": "B2"},
]
AMAZON_2023 = [
    {
        "main_category": "Music",
        "title": "Amp",
        "average_rating": 4.8,
        "features": ["loud"],
        "description": ["Loud."],
        "images": [
            {"thumb": "https://images.example/s.jpg", "large": "https://images.example/l.jpg", "hi_res": None},
            {"thumb": "https://images.example/2.jpg", "large": None, "hi_res": "https://images.example/2.jpg"},
        ],
        "categories": ["Amps", "Tubes"],
        "details": {"Brand": "Roar"},
        "parent_asin": "B1",
    },
    {"main_category": "Music", "title": "Pick", "images": [], "categories": [], "description": [], "parent_asin": "B2"},
]
YELP = [
    {"business_id": "B1", "name": "Abby's", "city": "Reno", "stars": 4.5, "categories": "Thai, Bars, Thai"},
    {"business_id": "B2", "name": "Bo", "city": "Reno", "stars": 3.0, "categories": None},
]


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "first", "second"),
    [
        (
            AMAZON_2014,
            ItemText('Player\'s "Amp"', ("Music", "Amps", "Tubes"), "Loud.", "http://images.example/51A.jpg"),
            ItemText(categories=("Music",)),
        ),
        (
            lines(AMAZON_2018),
            ItemText('Player\'s "Amp"', ("Music", "Amps"), "Loud.\nWarm & round.", "https://images.example/a.jpg"),
            ItemText("Pick"),
        ),
        (
            lines(AMAZON_2023),
            ItemText("Amp", ("Music", "Amps", "Tubes"), "Loud.", "https://images.example/l.jpg"),
            ItemText("Pick", ("Music",)),
        ),
        (lines(YELP), ItemText("Abby's", ("Thai", "Bars")), ItemText("Bo")),
        ('sku;name;category\nB1;Amp;"Music, loud"\nB2;Pick;\n', ItemText("Amp", ("Music, loud",)), ItemText("Pick")),
        ("id\tname\tgenres\nB1\tAmp\tMusic|Loud\nB2\tPick\t\n", ItemText("Amp", ("Music", "Loud")), ItemText("Pick")),
    ],
    ids=["amazon 2014", "amazon 2018", "amazon 2023", "yelp", "csv", "tsv"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_published_and_plain_files_are_recognised(tmp_path, content, first, second, packed):
    path = written(tmp_path / "items", gzip.compress(content.encode()) if packed else content)
    items = read_items(path)
    assert items.texts == {"B1": first, "B2": second}
    assert (items.ledger.read, items.ledger.accepted) == (2, 2)
    assert items.left_out == {}


def test_parquet_and_frames_are_read_alike(tmp_path):
    frame = polars.DataFrame(
        {
            "item": [1, 2],
            "title": ["Amp", None],
            "categories": [["Music", "Amps"], []],
            "images": [[{"hi_res": "https://images.example/a.jpg", "thumb": None}], []],
        }
    )
    frame.write_parquet(tmp_path / "items.parquet")
    expected = {"1": ItemText("Amp", ("Music", "Amps"), "", "https://images.example/a.jpg"), "2": ItemText()}
    as_pandas = pandas.DataFrame({name: frame[name].to_list() for name in frame.columns})
    for source in (tmp_path / "items.parquet", frame, as_pandas):
        assert read_items(source).texts == expected


def test_columns_with_other_names_are_named(tmp_path):
    path = written(tmp_path / "items.csv", "nummer,bezeichnung,art\nB1,Amp,Music\n")
    with pytest.raises(InputError, match=r"item's id; the columns are nummer, bezeichnung, art.*columns={\"item\":"):
        read_items(path)
    with pytest.raises(InputError, match=r"no column is recognised as title.*columns={\"title\":"):
        read_items(path, columns={"item": "nummer"})
    read = read_items(path, columns={"item": "nummer", "title": "bezeichnung", "category": "art"})
    assert read.texts == {"B1": ItemText("Amp", ("Music",))}
    with pytest.raises(InputError, match=r"'name' for the title is not there; the columns are nummer"):
        read_items(path, columns={"item": "nummer", "title": "name"})
    with pytest.raises(UsageError, match="no role 'rating' for a column of items"):
        read_items(path, columns={"rating": "art"})
    with pytest.raises(UsageError, match="items cannot be read from a int"):
        read_items(7)


def test_every_record_is_accepted_or_rejected_with_its_line(tmp_path):
    bad = [b'{"asin": "B2"', b"[1]", b'{"title": "nobody"}', b'{"asin": "B3", "title": "\xff"}', b"{'asin': open('x')}"]
    good = [b'{"asin": "B1", "title": "Amp"}', b"", b"{'asin': 'B4', 'title': 'Python'}"]
    items = read_items(written(tmp_path / "items.jsonl", b"\n".join([*good, *bad])))
    assert set(items.texts) == {"B1", "B4"}
    assert (items.ledger.read, items.ledger.accepted, items.ledger.rejected) == (7, 2, 5)
    assert [(one.line, one.reason) for one in items.ledger.rejections] == [
        (4, "not valid JSON"),
        (5, "not a JSON object"),
        (6, "item is missing"),
        (7, "not UTF-8"),
        (8, "neither JSON nor a literal of Python"),
    ]


def test_rows_that_do_not_fit_the_header_are_rejected(tmp_path):
    items = read_items(written(tmp_path / "items.csv", b'id,title\nB1,Amp\nB2,"A,B",x\n,Nameless\nB3,\xe9\nB4,"open\n'))
    assert set(items.texts) == {"B1"}
    assert items.ledger.read == items.ledger.accepted + items.ledger.rejected == 5
    assert {one.line: one.reason for one in items.ledger.rejections} == {
        3: "number of fields differs from the header",
        4: "item is empty",
        5: "not UTF-8",
        6: "quote is never closed",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "no usable line"),
        (b'[{"asin": "B1"}]', "no column is recognised as title"),
        ("id,words\nB1,Amp\n".encode("utf-16"), "the columns are id, words"),
        ("id,title\nB1,\xe9\n".encode("latin-1"), r"none of the 1 records can be used \(line 2: not UTF-8\)"),
        (b"id,title\n", "there are no records"),
        (gzip.compress(AMAZON_2014.encode())[:-20], "the compressed file breaks off"),
        (b"\x1f\x8b" + b"\0" * 40, "the compressed file is damaged"),
        (b"PAR1" + b"\0" * 40, "the table cannot be read"),
        (b"PK\x03\x04" + b"\0" * 40, "zip archive"),
    ],
)
def test_a_useless_file_is_refused_with_its_name(tmp_path, content, message):
    path = written(tmp_path / "items", content)
    with pytest.raises(InputError, match=message) as refused:
        read_items(path)
    assert str(path) in str(refused.value)


def test_what_is_no_picture_or_no_title_is_left_out_and_counted(tmp_path):
    addresses = [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "//x/a.png",
        "http://",
        "http://[",
        "https://a b/c",
        "a.png",
    ]
    records = [{"asin": f"B{n}", "title": "x", "image": one} for n, one in enumerate(addresses)]
    records += [
        {"asin": "T1", "title": "y" * 1001, "image": "HTTPS://images.example/a.png"},
        {"asin": "T2", "title": {}},
    ]
    items = read_items(written(tmp_path / "items.jsonl", lines(records)))
    assert items.left_out == {NO_PICTURE: len(addresses), NO_TITLE: 1}
    assert {text.picture for text in items.texts.values()} == {"", "HTTPS://images.example/a.png"}
    assert items.ledger.accepted == len(records)


def test_repeated_things_complete_each_other_and_the_first_text_counts(tmp_path):
    records = [{"asin": "B1", "category": ["Amps"]}, {"asin": "B1", "title": "Amp"}, {"asin": "B1", "title": "Other"}]
    items = read_items([written(tmp_path / "items.jsonl", lines(records))])
    assert items.texts == {"B1": ItemText("Amp", ("Amps",))}
    assert items.repeated == 2


@pytest.mark.parametrize(
    "text", ["__import__('os')", "{'asin': 'B1'}.get('asin')", "[" * 5000, "{'a': 1 + 1}", "'" * 9]
)
def test_a_line_of_python_is_never_run(tmp_path, text):
    ran = tmp_path / "ran"
    content = (
        f"{{'asin': 'B0', 'title': 'ok'}}\n{{'asin': 'B1', 'title': {text}}}\n{{'asin': open({str(ran)!r}, 'w')}}\n"
    )
    items = read_items(written(tmp_path / "items", content))
    assert set(items.texts) == {"B0"}
    assert items.ledger.rejected == 2
    assert not ran.exists()


REVIEWS = [(user, item, 3, f"words about {item}") for user in ("ann", "bob") for item in ("B1", "B2", "B3")]


@pytest.fixture
def reviews(tmp_path):
    header = "user,item,rating,text\n"
    return written(tmp_path / "reviews.csv", header + "".join(",".join(map(str, row)) + "\n" for row in REVIEWS))


def prepared(reviews, folder, *items, **asked):
    found = prepare_corpus([reviews], folder, SourceRequest(), min_reviews=1, items=items, overwrite=True, **asked)
    return found, Corpus.load(folder)


def test_a_file_that_names_half_of_the_things_describes_that_half(reviews, tmp_path):
    items = written(tmp_path / "items.jsonl", lines([*AMAZON_2018, {"asin": "B9", "title": "Nobody's"}]))
    found, corpus = prepared(reviews, tmp_path / "corpus", items)
    assert list(corpus.item_texts.titles) == ['Player\'s "Amp"', "Pick", ""]
    facts = corpus.facts["items"]
    assert (facts["described"], facts["without_reviews"], facts["titles"], facts["pictures"]) == (2, 1, 2, 1)
    assert found.items.read == found.items.accepted == 3
    kept = json.loads((tmp_path / "corpus" / "rejects-items.jsonl").read_text())
    assert (kept["read"], kept["accepted"], kept["rejected"]) == (3, 3, 0)


def test_a_corpus_made_in_memory_has_the_same_texts_of_things(reviews, tmp_path):
    items = written(tmp_path / "items.jsonl", lines(AMAZON_2023))
    _, saved = prepared(reviews, tmp_path / "corpus", items)
    in_memory = build_corpus(read_reviews(reviews), min_reviews=1, items=read_items(items))
    assert in_memory.item_texts.fingerprint == saved.item_texts.fingerprint
    assert in_memory.facts == saved.facts
    plain = build_corpus(read_reviews(reviews), min_reviews=1)
    assert in_memory.fingerprint == saved.fingerprint == plain.fingerprint


def test_titles_of_the_reviews_stay_where_the_file_has_none(tmp_path):
    rows = [{"user": u, "item": i, "rating": r, "text": t, "name": f"Name of {i}"} for u, i, r, t in REVIEWS]
    reviews = written(tmp_path / "reviews.jsonl", lines(rows))
    items = written(
        tmp_path / "items.jsonl", lines([{"asin": "B1", "title": "Amp"}, {"asin": "B2", "category": "Pick"}])
    )
    _, corpus = prepared(reviews, tmp_path / "corpus", items)
    assert list(corpus.item_texts.titles) == ["Amp", "Name of B2", "Name of B3"]


def test_two_things_may_have_the_same_title(reviews, tmp_path):
    items = written(tmp_path / "items.csv", "id,title\nB1,Amp\nB2,Amp\nB3,Pick\n")
    _, corpus = prepared(reviews, tmp_path / "corpus", items)
    assert list(corpus.item_texts.titles) == ["Amp", "Amp", "Pick"]
    assert corpus.facts["items"]["same_title"] == 2


def test_a_file_about_other_things_is_refused_and_leaves_nothing_behind(reviews, tmp_path):
    items = written(tmp_path / "items.csv", "id,title\nX1,Amp\n")
    with pytest.raises(InputError, match=r"none of the 3 items of the reviews is in it.*'B1', 'B2', 'B3'.*'X1'"):
        prepared(reviews, tmp_path / "corpus", items)
    assert not (tmp_path / "corpus").exists()
    with pytest.raises(InputError, match="none of the 3 items"):
        build_corpus(read_reviews(reviews), min_reviews=1, items=read_items(items))


def test_a_missing_file_about_items_is_named_before_the_reviews_are_read(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv: there is no such file"):
        prepared(tmp_path / "no-reviews.csv", tmp_path / "corpus", tmp_path / "nowhere.csv")


def test_ten_thousand_categories_are_kept(reviews, tmp_path):
    many = [f"Category {number}" for number in range(10_000)]
    records = [{"asin": "B1", "title": "Amp", "category": many}, {"asin": "B2", "category": ["Category 1"]}]
    _, corpus = prepared(reviews, tmp_path / "corpus", written(tmp_path / "items.jsonl", lines(records)))
    assert corpus.item_texts.categories_of(0) == many
    assert corpus.item_texts.categories_of(1) == ["Category 1"]
    assert corpus.item_names.offsets.tolist() == [0, 10_001, 10_002, 10_002], "numbers are no words"
