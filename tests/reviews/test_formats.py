"""Every format gives the same reviews, and says what it could not use."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from datetime import UTC, datetime

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pytest
import zstandard

from carp.errors import InputError, UsageError
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.formats import iterate_reviews, read_reviews
from carp.reviews.sources.ledger import Ledger, Rejection, Review
from carp.reviews.sources.recognition import FORMATS, detect_format

ROWS = [
    {"user": "ann", "item": "1", "rating": 5.0, "text": "It is light.", "time": 1393545600},
    {"user": "bob", "item": "2", "rating": 2.0, "text": 'Broke, "twice".\nNever again; no.', "time": 1331596800},
    {"user": "Zoë", "item": "1", "rating": 4.0, "text": "", "time": 1331596800},
]
BEER = """beer/name: John Harvards
beer/beerId: 1
review/overall: 13/20
review/time: 1157587200
review/profileName: ann
review/text: On tap at the Springfield.

beer/beerId: 2
review/overall: 2/20
review/time: 1157241600
review/profileName: bob
review/text: Thin.
"""


def json_lines(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def renamed(row, names):
    return {names[key]: value for key, value in row.items()}


def as_csv(rows, delimiter=",", header=None):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(header or rows[0])
    writer.writerows(row.values() for row in rows)
    return text.getvalue().encode()


def amazon(rows):
    names = {"user": "reviewerID", "item": "asin", "rating": "overall", "text": "reviewText", "time": "unixReviewTime"}
    return json_lines(renamed(row, names) for row in rows)


def amazon2023(rows):
    names = {"user": "user_id", "item": "parent_asin", "rating": "rating", "text": "text", "time": "timestamp"}
    return json_lines({"asin": "variant", **renamed({**row, "time": row["time"] * 1000}, names)} for row in rows)


def yelp(rows):
    names = {"user": "user_id", "item": "business_id", "rating": "stars", "text": "text", "time": "date"}
    dated = ({**row, "time": f"{datetime.fromtimestamp(row['time'], UTC):%Y-%m-%d %H:%M:%S}"} for row in rows)
    return json_lines(renamed(row, names) for row in dated)


def parquet(rows):
    out = io.BytesIO()
    pl.DataFrame(rows).write_parquet(out)
    return out.getvalue()


def workbook(rows):
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(list(rows[0]))
    for row in rows:
        book.active.append(list(row.values()))
    book.save(out)
    return out.getvalue()


def beer(rows):
    blocks = (
        f"beer/beerId: {row['item']}\nreview/profileName: {row['user']}\nreview/overall: {row['rating']}/5\n"
        f"review/time: {row['time']}\nreview/text: {row['text']}\n"
        for row in rows
    )
    return "\n".join(blocks).encode()


ENCODERS = {
    "amazon": amazon,
    "amazon2023": amazon2023,
    "yelp": yelp,
    "beer": beer,
    "jsonl": json_lines,
    "csv": as_csv,
    "parquet": parquet,
    "xlsx": workbook,
}


def expect_rows(reviews):
    assert reviews.users == [row["user"] for row in ROWS]
    assert reviews.items == [row["item"] for row in ROWS]
    assert reviews.ratings.dtype == np.float64
    assert reviews.ratings.tolist() == [row["rating"] for row in ROWS]
    assert reviews.texts == [row["text"] for row in ROWS]
    assert reviews.times == [row["time"] for row in ROWS]
    assert reviews.splits is None
    assert (reviews.ledger.read, reviews.ledger.accepted, reviews.ledger.rejected) == (3, 3, 0)
    assert (reviews.scale.low, reviews.scale.high) == (1, 5)
    assert len(reviews) == 3


def test_every_format_is_tried():
    assert set(ENCODERS) == set(FORMATS)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_recognised_and_gives_the_same_reviews(tmp_path, format):
    path = tmp_path / "reviews"
    path.write_bytes(ENCODERS[format](ROWS))
    assert detect_format(path) == format
    reviews = read_reviews(path)
    assert reviews.format == format
    assert reviews.sources == [str(path)]
    expect_rows(reviews)
    expect_rows(read_reviews(str(path), format=format))


@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ("parquet", "xlsx")])
@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        zstandard.ZstdCompressor().compress,
        lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),
        lambda data: zstandard.ZstdCompressor().compress(data[:40]) + zstandard.ZstdCompressor().compress(data[40:]),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\n\n" + data + b"\n\n",
    ],
    ids=["gzip", "zstd", "two gzip members", "two zstd frames", "byte order mark", "Windows line ends", "blank lines"],
)
def test_packing_and_line_ends_change_nothing(tmp_path, format, pack):
    path = tmp_path / "misleading.txt"
    path.write_bytes(pack(ENCODERS[format](ROWS)))
    expect_rows(read_reviews(path))


def test_a_plain_file_named_gz_is_read_as_what_it_is(tmp_path):
    path = tmp_path / "reviews.json.gz"
    path.write_bytes(json_lines(ROWS))
    expect_rows(read_reviews(path))


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_csv_delimiters_are_told_from_the_header(tmp_path, delimiter):
    path = tmp_path / "reviews.csv"
    path.write_bytes(as_csv(ROWS, delimiter))
    expect_rows(read_reviews(path))


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame(ROWS), pl.DataFrame(ROWS), pl.LazyFrame(ROWS)],
    ids=["pandas", "polars", "lazy"],
)
def test_frames_give_the_same_reviews(frame):
    reviews = read_reviews(frame)
    assert reviews.format == "frame"
    expect_rows(reviews)


def test_several_files_are_read_in_order_with_one_ledger(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.csv"
    first.write_bytes(amazon(ROWS) + b"{broken\n")
    second.write_bytes(as_csv(ROWS))
    reviews = read_reviews([first, second])
    assert reviews.users == [row["user"] for row in ROWS] * 2
    assert reviews.format == "amazon+csv"
    assert reviews.ledger.read == 7
    assert reviews.ledger.rejections == [Rejection(str(first), 4, "not valid JSON", "'{broken'")]


def test_files_on_different_scales_are_not_mixed(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.txt"
    first.write_bytes(amazon(ROWS))
    second.write_text(BEER)
    with pytest.raises(InputError, match="1 to 5 and 4 to 20"):
        read_reviews([first, second])


def test_ids_that_are_numbers_become_text_and_ratings_in_text_become_numbers(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(json_lines([{"user": 12, "item": 7.0, "rating": " 4.5 ", "text": " \n "}]))
    assert list(iterate_reviews(path)) == [Review("12", "7", 4.5, "", None, None)]


def test_variants_of_a_product_count_as_one_and_the_variant_stands_in_where_no_parent_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    row = {"user_id": "a", "rating": 5, "text": "t", "asin": "variant"}
    path.write_bytes(json_lines([{**row, "parent_asin": "parent"}, row]))
    assert read_reviews(path).items == ["parent", "variant"]


def source_of(kind, rows, folder):
    """The rows as a frame, or as a file of a format."""
    if kind in ("pandas", "polars"):
        return pd.DataFrame(rows) if kind == "pandas" else pl.DataFrame(rows)
    (folder / "r").write_bytes(ENCODERS[kind](rows))
    return folder / "r"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "pandas", "polars"])
def test_columns_can_be_named(tmp_path, kind):
    names = {"user": "who", "item": "thing", "rating": "note", "text": "avis", "time": "quand"}
    rows = [{"text": "a decoy", **renamed(row, names)} for row in ROWS]
    source = source_of(kind, rows, tmp_path)
    expect_rows(read_reviews(source, columns=names))
    with pytest.raises(InputError, match=r"user or item or rating.*who, thing, note.*columns={\"user\": \"NAME\""):
        read_reviews(source)


def test_naming_a_column_of_a_known_format_reads_that_column(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(json_lines([{"reviewerID": "a", "asin": "b", "overall": 5, "reviewText": "x", "summary": "y"}]))
    assert read_reviews(path, columns={"text": "summary"}).texts == ["y"]
    with pytest.raises(UsageError, match="amazon"):
        read_reviews(path, format="amazon", columns={"text": "summary"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"txt": "text"}, "did you mean text"),
        ({"user": "user", "item": "user"}, "two roles"),
    ],
)
def test_wrong_column_roles_are_wrong_use(columns, message):
    with pytest.raises(UsageError, match=message):
        read_reviews(pd.DataFrame(ROWS), columns=columns)


def test_a_named_column_that_is_absent_lists_those_that_exist():
    with pytest.raises(InputError, match=r"no column 'body' .* user, item, rating, text, time"):
        read_reviews(pl.DataFrame(ROWS), columns={"text": "body"})


def test_a_column_that_appears_twice_is_refused(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating,text,text\na,b,5,x,y\n")
    with pytest.raises(InputError, match="'text' appears twice"):
        read_reviews(path)


ESCAPED = {
    "5&#34; cable": '5" cable',
    "Fender &amp; Gibson": "Fender & Gibson",
    "I&#8217;d &lt;3 it, &oacute; s&#xED;": "I’d <3 it, ó sí",
    "&amp;#34;": '"',  # escaped twice, as many shops do
    "&nbsp; &#32;": "",
    "AT&T, R&B; H&M; A & B": "AT&T, R&B; H&M; A & B",
    "&notice; &amp &#34 &#; &;": "&notice; &amp &#34 &#; &;",  # beginnings of names and lost ends are no entities
    "&#0;&#55357;": "\ufffd\ufffd",
    "&#9999999;&#xFFFFFF;": "\ufffd\ufffd",
}


@pytest.mark.parametrize("kind", [*FORMATS, "pandas", "polars"])
def test_html_entities_become_characters_in_texts_and_stay_in_ids(tmp_path, kind):
    rows = [{**ROWS[0], "user": "a&amp;b", "item": "x&#34;", "text": text} for text in ESCAPED]
    source = source_of(kind, rows, tmp_path)
    reviews = read_reviews(source)
    assert reviews.texts == list(ESCAPED.values())
    assert (set(reviews.users), set(reviews.items)) == ({"a&amp;b"}, {"x&#34;"})


def test_no_entity_is_left_in_musical_instruments(real_data):
    texts = read_reviews(real_data / "reviews_Musical_Instruments_5.json.gz").texts
    assert not [text for text in texts if re.search(r"&(#\d+|amp|lt|gt|quot|oacute|[lr]dquo);", text)]
    assert sum("A&M;" in text or "H&K;" in text or "&L;" in text for text in texts), "what is none is left alone"


def test_the_datas_own_split_is_kept(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(
        "user,item,rating,text,split\na,1,5,x,train\na,2,5,x,Validation\na,3,5,x,test\na,4,5,x,dev\na,5,5,x,val\na,6,5,x,later\na,7,5,x,\n"
    )
    reviews = read_reviews(path)
    assert reviews.splits == ["train", "valid", "test", "valid", "valid"]
    assert [row.reason for row in reviews.ledger.rejections] == [
        "split is not train, valid or test",
        "split is missing",
    ]


def test_missing_values_in_frames_are_rejected_with_their_row():
    table = {"user": ["a", None, "c"], "item": [1.0, 2.0, None], "rating": [5, 4, 3], "text": ["x", "y", "z"]}
    for frame in (pd.DataFrame(table), pl.DataFrame(table)):
        reviews = read_reviews(frame)
        assert reviews.items == ["1"]
        assert [(row.line, row.reason) for row in reviews.ledger.rejections] == [
            (2, "user is missing"),
            (3, "item is missing"),
        ]


def test_times_in_frames_may_be_dates():
    table = {"user": ["a"], "item": ["b"], "rating": [5], "text": ["x"], "date": [datetime(2014, 2, 28)]}
    for frame in (pd.DataFrame(table), pl.DataFrame(table)):
        assert read_reviews(frame).times == [1393545600]


def test_ratebeer_scores_below_four_count_as_four(tmp_path):
    path = tmp_path / "beer.txt"
    path.write_text(BEER)
    reviews = read_reviews(path)
    assert reviews.ratings.tolist() == [13.0, 2.0]
    assert reviews.scale.to_stars(reviews.ratings).tolist() == [3.25, 1.0]
    assert reviews.scale.describe(reviews.ratings).endswith("1 below 4 counted as 4")


def test_beer_names_in_an_older_encoding_cost_nothing_and_texts_in_one_are_rejected(tmp_path):
    path = tmp_path / "beer.txt"
    block = "beer/name: Kölsch\nbeer/beerId: 1\nreview/overall: 4/20\nreview/profileName: a\nreview/text: {}\n\n"
    path.write_bytes("".join(block.format(text) for text in ("fine", "Füll")).encode("latin-1"))
    assert [type(record) for record in iterate_reviews(path)] == [Review, Rejection]
    assert read_reviews(path).ledger.rejections == [Rejection(str(path), 7, "not UTF-8")]


def test_ratings_of_unknown_scale_need_their_range():
    frame = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "rating": [0, 10], "text": ["t", "t"]})
    with pytest.raises(InputError, match=r"from 0 to 10.*rating_range=\(0, 10\)"):
        read_reviews(frame)
    assert read_reviews(frame, rating_range=(0, 10)).scale.to_stars([0, 5, 10]).tolist() == [1, 3, 5]
    strict = read_reviews(frame, rating_range=(0, 5))
    assert strict.ledger.counts == {"rating lies outside 0 to 5": 1}
    clipped = read_reviews(frame, rating_range=(0, 5), clip_ratings=True)
    assert clipped.ratings.tolist() == [0, 10]
    assert clipped.scale.to_stars(clipped.ratings).tolist() == [1, 5]


@pytest.mark.parametrize("bounds", [(5, 1), (1, 1), (float("nan"), 5), (1, float("inf"))])
def test_a_range_that_is_none_is_wrong_use(bounds):
    with pytest.raises(UsageError, match="not a range of ratings"):
        read_reviews(pl.DataFrame(ROWS), rating_range=bounds)


@pytest.mark.parametrize("levels", [2, 5, 10])
def test_stars_map_back_to_the_ratings_they_came_from(levels):
    scale = RatingScale(-3, 7.5, clip=False, origin="test")
    values = np.linspace(-3, 7.5, 22)
    stars = scale.to_stars(values, levels)
    assert (stars.min(), stars.max()) == (1, levels)
    np.testing.assert_allclose(scale.from_stars(stars, levels), values, atol=1e-12)


def test_scales_describe_themselves():
    assert RatingScale(1, 5, False, "").describe() == "ratings from 1 to 5 stay as they are"
    assert RatingScale(-1, 1, False, "").describe() == "ratings from -1 to 1 become 1 to 5 by 1 + 4·(r + 1)/2"
    words = RatingScale(0, 8, True, "").describe([-1, 9, 9])
    assert words.endswith("; 1 below 0 counted as 0; 2 above 8 counted as 8")


def test_a_saved_ledger_holds_the_totals_and_every_rejection(tmp_path):
    ledger = Ledger()
    ledger.accept(3)
    ledger.reject(Rejection("f", 4, "text is missing"))
    ledger.reject(Rejection("f", 9, "text is missing"))
    ledger.save(tmp_path / "rejects.jsonl")
    totals, *rest = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert totals == {"read": 5, "accepted": 3, "rejected": 2, "listed": 2, "reasons": {"text is missing": 2}}
    assert rest == [{"file": "f", "line": line, "reason": "text is missing"} for line in (4, 9)]
    assert ledger.summary().splitlines()[1] == "  2 × text is missing (first: f line 4)"


def test_counts_stay_complete_when_the_list_of_rejections_is_full(monkeypatch):
    monkeypatch.setattr("carp.reviews.sources.ledger.KEPT_REJECTIONS", 3)
    ledger, other = Ledger(), Ledger()
    for line in range(1, 6):
        other.reject(Rejection("f", line, "not valid JSON"))
    ledger.absorb(other)
    ledger.absorb(other)
    assert (ledger.read, ledger.rejected, len(ledger.rejections)) == (10, 10, 3)


def test_progress_counts_the_bytes_of_all_files(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(json_lines(ROWS))
    seen = []
    read_reviews(paths, progress=lambda done, total: seen.append((done, total)))
    total = sum(path.stat().st_size for path in paths)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


def test_unknown_formats_and_sources_are_wrong_use(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(json_lines(ROWS))
    with pytest.raises(UsageError, match="did you mean amazon"):
        read_reviews(path, format="amazom")
    with pytest.raises(UsageError, match="from a int"):
        read_reviews(3)
    with pytest.raises(UsageError, match="no file"):
        read_reviews([])


def test_reviews_show_themselves():
    assert repr(read_reviews(pl.DataFrame(ROWS))) == "<Reviews: 3 reviews by 3 users of 2 items, frame, ratings 1 to 5>"


def test_musical_instruments_are_the_papers(real_data):
    reviews = read_reviews(real_data / "reviews_Musical_Instruments_5.json.gz")
    assert reviews.format == "amazon"
    assert (len(reviews), reviews.ledger.rejected) == (10_261, 0)
    assert (len(set(reviews.users)), len(set(reviews.items))) == (1_429, 900)
    assert sum(not text for text in reviews.texts) == 7
    assert all(time is not None for time in reviews.times)


def test_ratebeer_is_read_whole(real_data):
    reviews = read_reviews(real_data / "ratebeer.jsonl.gz", rating_range=(4, 20), clip_ratings=True)
    assert (len(reviews), reviews.ledger.rejected) == (51_900, 0)
    assert sum(not text for text in reviews.texts) == 83
    stars = reviews.scale.to_stars(reviews.ratings)
    assert (stars.min(), stars.max()) == (1, 5)


def test_tripadvisor_is_read_whole(real_data):
    reviews = read_reviews(real_data / "tripadvisor.jsonl.gz")
    assert (len(reviews), reviews.ledger.rejected) == (63_084, 0)
    assert (len(set(reviews.users)), len(set(reviews.items))) == (9_447, 2_959)
    assert reviews.times[0] == datetime(2012, 3, 13, tzinfo=UTC).timestamp()
