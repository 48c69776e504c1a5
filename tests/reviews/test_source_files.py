"""Data as people have it: arrays, archives, workbooks, folders, addresses, encodings, and ratings in words."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import random
import sys
import tracemalloc
import zipfile
from functools import partial
from itertools import chain, repeat

import fsspec
import openpyxl
import polars
import pytest
import zstandard
from fsspec.implementations.memory import MemoryFileSystem

from carp.errors import InputError, UsageError
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.corpora.preparation import prepare_corpus
from carp.reviews.sources import json_values, unpacking
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.item_files import read_items
from carp.reviews.sources.ledger import Rejection
from carp.reviews.sources.pair_files import read_pairs
from carp.reviews.sources.ratings import read_rating
from carp.reviews.sources.request import SourceRequest

ROWS = [
    {"user": "ann", "item": "lamp", "rating": 5, "text": "Bright, and it was cheap."},
    {"user": "Zoë", "item": "lamp", "rating": 2, "text": "Es flackert, schöne Grüße."},
    {"user": "ann", "item": "desk", "rating": 4, "text": 'Solid [wood], but {heavy}: "100 %"\n— naïve café.'},
]
HEADER = "user,item,rating,text\n"


def csv_of(rows, header=HEADER):
    return header + "".join(f'{row["user"]},{row["item"]},{row["rating"]},"{_quoted(row["text"])}"\n' for row in rows)


def _quoted(text):
    return text.replace('"', '""')


def archive(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in members.items():
            out.writestr(name, content)
    return path


def workbook(rows, path, sheets=1):
    book = openpyxl.Workbook()
    for _ in range(sheets - 1):
        book.create_sheet()
    sheet = book.worksheets[-1]
    for row in rows:
        sheet.append(row)
    book.save(path)
    return path


def expect(reviews, rows=ROWS):
    found = zip(reviews.users, reviews.items, reviews.ratings.tolist(), reviews.texts, strict=True)
    assert list(found) == [(row["user"], row["item"], row["rating"], row["text"]) for row in rows]
    assert reviews.ledger.read == reviews.ledger.accepted == len(rows)


# ---- JSON that is not one object a line


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("shape", ["array", "objects"])
@pytest.mark.parametrize("chunk", [7, 256 << 10])
def test_arrays_and_objects_over_several_lines_are_read(tmp_path, monkeypatch, indent, shape, chunk):
    monkeypatch.setattr(unpacking, "CHUNK", chunk)
    path = tmp_path / "reviews.json"
    listed = json.dumps(ROWS, indent=indent, ensure_ascii=False)
    objects = "\n".join(json.dumps(row, indent=1, ensure_ascii=False) for row in ROWS)
    path.write_text("\ufeff" + (listed if shape == "array" else objects))
    reviews = read_reviews(path)
    expect(reviews)
    assert reviews.format == "jsonl"


def test_an_array_of_amazon_reviews_is_recognised(tmp_path):
    rows = [{"reviewerID": "a", "asin": "b", "overall": 4, "reviewText": "Fine.", "unixReviewTime": 1}] * 2
    (tmp_path / "r").write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert read_reviews(tmp_path / "r").format == "amazon"


def test_a_broken_object_in_an_array_costs_itself_alone_and_is_shown(tmp_path):
    good = json.dumps(ROWS[0])
    (tmp_path / "r").write_text(f'[{good},\n{{"user": "x" "item": 1}},\n{good},\n7,\n{good}')
    reviews = read_reviews(tmp_path / "r")
    assert (reviews.ledger.read, reviews.ledger.accepted) == (5, 3)
    shown = [(one.line, one.reason, one.value) for one in reviews.ledger.rejections]
    assert shown == [
        (2, "not valid JSON", """'{"user": "x" "item": 1},'"""),
        (4, "not a JSON object", "'7'"),
    ]


def test_arrays_spoiled_at_random_end_with_every_piece_accepted_or_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "CHUNK", 64)
    monkeypatch.setattr(json_values, "MAX_LINE", 2_000)
    chance = random.Random(2)
    whole = json.dumps([{**ROWS[0], "text": f"Text {number}."} for number in range(30)], indent=1).encode()
    for _ in range(60):
        spoiled = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            spoiled[chance.randrange(200, len(spoiled))] = chance.choice(b'"{}[]\\,:x\xff\n')
        (tmp_path / "r").write_bytes(spoiled)
        ledger = read_reviews(tmp_path / "r").ledger
        assert ledger.read == ledger.accepted + ledger.rejected
        assert 20 <= ledger.accepted <= 30


ELEMENTS = [
    7,
    123456,
    -0.5,
    None,
    True,
    "",
    "a, [b] {c}",
    'said "no" \\ and left',
    "x" * 90,
    "Grüße, " * 20,
    [],
    [1, 2],
    [[[]]],
    [{}],
    [[1], "]", {"a": ["}"]}] * 9,
    {},
    {"user": "ann", "text": "[so], {what}?"},
    {"deep": [[["x, {" * 20]]], "end": '\\"'},
]


def cut_into_lines(monkeypatch, content, size):
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    monkeypatch.setattr(json_values, "unpacked", lambda *given: iter(pieces))
    return list(json_values.json_lines_of("file", [b"["]))


def test_every_element_of_an_array_is_one_line_wherever_the_pieces_of_a_file_end(monkeypatch):
    monkeypatch.setattr(json_values, "MAX_LINE", 60)
    for seed in range(200):
        chance = random.Random(seed)
        elements = chance.choices(ELEMENTS, k=chance.randrange(8))
        texts = [json.dumps(one, ensure_ascii=chance.random() < 0.5) for one in elements]
        between = chance.choice([",", ", ", " ,\n"])
        content = f"[{between.join(texts)}]".encode()
        lines = [line for _, line in cut_into_lines(monkeypatch, content, chance.randrange(1, 50))]
        assert lines == [one.encode() if len(one.encode()) <= 60 else None for one in texts], seed


def test_numbers_of_any_length_and_elements_of_any_depth_are_refused_alone(tmp_path):
    good = json.dumps(ROWS[0])
    strange = ["1" * 5_000, "[" * 20_000 + "]" * 20_000, '{"a":' * 20_000 + "1" + "}" * 20_000, "[1, 2]"]
    (tmp_path / "r").write_text(f"[{good},{f',{good},'.join(strange)},{good}]")
    ledger = read_reviews(tmp_path / "r").ledger
    assert (ledger.accepted, ledger.rejected) == (5, 4)
    assert {one.line for one in ledger.rejections} == {1}


def test_a_string_that_is_never_closed_costs_no_more_than_its_line(monkeypatch):
    monkeypatch.setattr(json_values, "MAX_LINE", 60)
    good = b'{"user": 1}'
    content = b"[\n" + good + b',\n{"user": "' + b"x" * 100 + b"},\n" + good + b",\n" + good + b"\n]"
    for size in (10, 70, 1000):
        lines = cut_into_lines(monkeypatch, content, size)
        assert lines == [(2, good), (3, None), (4, good), (5, good)], size


@pytest.mark.parametrize(
    ("first", "pack"),
    [(ROWS[0], bytes), (5, zstandard.compress), ("x" * (5 << 20), bytes), ("x" * (5 << 20), gzip.compress)],
    ids=["a review", "a number, packed", "a long string", "a long string, packed"],
)
def test_an_array_in_one_line_may_be_longer_than_any_line(tmp_path, first, pack):
    long = {**ROWS[1], "text": "".join(random.Random(1).choices("abcdefghij ", k=5 << 20))}
    rows = [first, *ROWS, long, *[{**ROWS[2], "text": f"{'Text ' * 30}{number}."} for number in range(2_000)]]
    (tmp_path / "r").write_bytes(pack(json.dumps(rows, separators=(",", ":")).encode()))
    reviews = read_reviews(tmp_path / "r")
    refused = 1 + (first is not ROWS[0])
    assert (reviews.ledger.read, reviews.ledger.rejected) == (len(rows), refused)
    assert reviews.texts[-1].endswith("1999.")


def test_an_array_that_never_ends_is_cut_in_bounded_memory(monkeypatch):
    """Of an element that goes on and on, no more is kept than a line may have."""
    monkeypatch.setattr(json_values, "MAX_LINE", 1 << 20)
    endless = chain([b'[{"a":1},"'], repeat(b"x" * (256 << 10), 200), [b'",{"b":2}]'])
    monkeypatch.setattr(json_values, "unpacked", lambda *given: endless)
    tracemalloc.start()
    lines = [line for _, line in json_values.json_lines_of("file", [b"["])]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines == [b'{"a":1}', None, b'{"b":2}']
    assert most < 10 << 20


def test_long_arrays_of_pairs_and_of_items_are_read_too(tmp_path):
    pairs = [{"user": f"user-{number}", "item": "lamp" * 200} for number in range(6_000)]
    (tmp_path / "pairs").write_text(json.dumps(pairs))
    assert len(read_pairs(tmp_path / "pairs").pairs) == len(pairs)
    items = [{"item": f"item-{number}", "title": "lamp " * 150} for number in range(6_000)]
    (tmp_path / "items").write_text(json.dumps(items))
    assert read_items(tmp_path / "items").ledger.accepted == len(items)


def test_a_file_of_one_long_line_that_is_no_array_is_named_as_such(tmp_path):
    (tmp_path / "r").write_text(json.dumps({"reviews": "x" * (5 << 20)}))
    with pytest.raises(InputError, match="lines are blank, or longer than 4 MiB"):
        read_reviews(tmp_path / "r")


# ---- archives, workbooks, folders, patterns, standard input


def test_every_file_in_a_zip_archive_is_read_under_its_own_name(tmp_path):
    members = {"a/one.csv": csv_of(ROWS[:1]), "two.jsonl": json.dumps(ROWS[1]), "__MACOSX/junk": "x", ".hidden": "x"}
    table = io.BytesIO()
    polars.DataFrame(ROWS[2:]).write_parquet(table)
    path = archive(tmp_path / "reviews.zip", {**members, "three.parquet": table.getvalue()})
    reviews = read_reviews(path)
    expect(reviews)
    assert reviews.sources == [f"{path}/a/one.csv", f"{path}/two.jsonl", f"{path}/three.parquet"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04" + bytes(100), "zip archive cannot be read"),
        ({}, "no such file|zip archive"),
        ({".hidden": "x"}, "the zip archive has no files"),
        ({"bomb": bytes(40 << 20)}, "unpacks to more than"),
        ({"empty.csv": ""}, "empty.csv: the file is empty"),
    ],
)
def test_archives_that_cannot_be_read_are_refused(tmp_path, content, words):
    path = tmp_path / "reviews.zip"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        archive(path, content or {".x": ""})
    with pytest.raises(InputError, match=words):
        read_reviews(path)


def test_a_workbook_is_read_with_numbers_dates_and_empty_cells(tmp_path):
    rows = [
        ["user", "item", "rating", "text", "time"],
        [12, "lamp", 5, "Bright."],
        [None] * 5,
        [13, 7, "4,5", "Dim.", "2024-03-01"],
    ]
    path = workbook(rows, tmp_path / "reviews.xlsx", sheets=2)
    reviews = read_reviews(path)
    assert (reviews.users, reviews.items, reviews.ratings.tolist()) == (["12", "13"], ["lamp", "7"], [5, 4.5])
    assert reviews.times == [None, 1709251200]
    assert reviews.format == "xlsx"


def test_a_workbook_names_the_row_and_the_value_it_refuses(tmp_path):
    path = workbook(
        [["user", "item", "rating", "text"], ["a", "b", 5, "x"], ["a", "b", "six", "x"]], tmp_path / "r.xlsx"
    )
    assert read_reviews(path).ledger.rejections == [Rejection(str(path), 3, "rating is not a number", "'six'")]
    broken = archive(tmp_path / "broken.xlsx", {"xl/workbook.xml": "<nothing/>"})
    with pytest.raises(InputError, match="workbook cannot be read"):
        read_reviews(broken)


def test_a_workbook_that_goes_on_in_another_sheet_is_refused_and_notes_are_not_read(tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "2013"
    for name in ("notes", "2014"):
        book.create_sheet(name).append(["user", "item"])
    for row in (HEADER.strip().split(","), ["ann", "lamp", 5, "It is light."]):
        book["2013"].append(row)
    book.save(tmp_path / "notes.xlsx")
    assert len(read_reviews(tmp_path / "notes.xlsx")) == 1
    book["2014"].delete_rows(1)
    book["2014"].append([*HEADER.strip().split(","), None])
    book["2014"].append(["bob", "lamp", 4, "It is heavy.", "a note"])
    book.save(tmp_path / "years.xlsx")
    with pytest.raises(InputError, match="the sheet '2014' has the same columns as the sheet '2013'"):
        read_reviews(tmp_path / "years.xlsx")


def test_a_folder_a_pattern_and_a_list_of_files_are_the_same(tmp_path):
    folder = tmp_path / "reviews"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.csv").write_text(csv_of(ROWS[:1]))
    (folder / "deep" / "b.jsonl").write_text(json.dumps(ROWS[1]))
    (folder / "z.csv").write_text(csv_of(ROWS[2:]))
    (folder / "_SUCCESS").write_text("")
    (folder / ".part.crc").write_text("x")
    for given in (folder, f"{folder}/**/*.*", [folder / "a.csv", folder / "deep", f"{folder}/z*"]):
        expect(read_reviews(given))
    with pytest.raises(InputError, match="no file matches"):
        read_reviews(f"{folder}/*.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder has no files"):
        read_reviews(tmp_path / "empty")


@pytest.mark.parametrize(
    ("stands", "words"),
    [
        (lambda place, _: place.symlink_to(place.parent / "gone"), "no such file"),
        (lambda place, other: place.symlink_to(other), "leads to a folder, and is not followed"),
        (lambda place, _: place.symlink_to(place), "cannot be read"),
        (lambda place, _: os.mkfifo(place), "a pipe or a device"),
    ],
    ids=["a link to nothing", "a link to a folder", "a link to itself", "a pipe"],
)
def test_nothing_in_a_folder_is_passed_over_without_a_word(tmp_path, stands, words):
    folder, other = tmp_path / "reviews", tmp_path / "other"
    for made in (folder, other):
        made.mkdir()
        (made / "a.csv").write_text(csv_of(ROWS))
    stands(folder / "b.csv", other)
    for given in (folder, f"{folder}/*.csv"):
        if given is folder or "folder" not in words:  # a pattern names what it finds, so its links are followed
            with pytest.raises(InputError, match=words) as caught:
                read_reviews(given)
            assert caught.value.where == str(folder / "b.csv")
    (folder / "b.csv").rename(folder / "_b.csv")
    expect(read_reviews(folder))


def test_a_folder_below_that_cannot_be_looked_into_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "reviews"
    (folder / "2014").mkdir(parents=True)
    for place in (folder, folder / "2014"):
        (place / "a.csv").write_text(csv_of(ROWS))
    scandir = os.scandir

    def refusing(place):  # permissions do not hold for who runs the tests in a container
        if str(place).endswith("2014"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(InputError, match="the folder cannot be read") as caught:
        read_reviews(folder)
    assert caught.value.where == str(folder / "2014")


@pytest.mark.parametrize("pack", [lambda content: content, partial(gzip.compress, compresslevel=0)])
def test_a_file_that_is_cut_off_while_it_is_read_is_refused(tmp_path, pack):
    file = tmp_path / "reviews.csv"
    file.write_bytes(pack(csv_of(ROWS * 20_000).encode()))

    def cut(done, whole):
        os.truncate(file, done)

    with pytest.raises(InputError, match=r"was cut off while|breaks off"):
        read_reviews(file, progress=cut)


def test_a_file_that_grows_while_it_is_read_is_read(tmp_path):
    file, before = tmp_path / "reviews.csv", len(ROWS) * 20_000
    file.write_text(csv_of(ROWS * 20_000))
    grown = []

    def grow(done, whole):
        if not grown:
            with file.open("a") as more:
                grown.append(more.write(csv_of(ROWS, header="")))

    assert len(read_reviews(file, progress=grow)) == before + len(ROWS)


def test_a_damaged_file_among_many_is_named(tmp_path):
    for number in range(20):
        (tmp_path / f"{number:02}.csv").write_text(csv_of(ROWS))
    (tmp_path / "07.csv").write_bytes(gzip.compress(csv_of(ROWS).encode())[:-12])
    with pytest.raises(InputError, match=r"07\.csv: the compressed file breaks off"):
        prepare_corpus([tmp_path], tmp_path / "out", SourceRequest(), min_reviews=1)
    assert not (tmp_path / "out").exists()


def damaged(part):
    part.write_bytes(part.read_bytes()[:-20])


def renamed(part):
    polars.read_parquet(part).rename({"text": "words"}).write_parquet(part)


def retyped(part):
    polars.read_parquet(part).with_columns(rating=polars.lit("many")).write_parquet(part)


@pytest.mark.parametrize(
    ("harm", "said", "fix"),
    [
        (damaged, "the table cannot be read", "check that it is a whole Parquet file"),
        (renamed, "has a column 'words' that the first part has not and lacks the column 'text'", "give the files one"),
        (retyped, "has String in the column 'rating', where the first part has", "write it again with the same"),
    ],
)
def test_the_part_of_a_data_set_that_cannot_be_used_is_named(tmp_path, harm, said, fix):
    for name in ("a", "b", "c"):
        polars.DataFrame(ROWS[:2]).write_parquet(tmp_path / f"{name}.parquet")
    harm(tmp_path / "b.parquet")
    with pytest.raises(InputError) as caught:
        read_reviews(tmp_path)
    assert caught.value.where == str(tmp_path / "b.parquet")
    assert said in caught.value.what
    assert fix in caught.value.fix


def test_a_parquet_data_set_is_one_table_with_the_columns_its_folders_name(tmp_path):
    folder = tmp_path / "set"
    for row in ROWS:
        place = folder / f"item={row['item']}"
        place.mkdir(parents=True, exist_ok=True)
        rest = {name: value for name, value in row.items() if name != "item"}
        polars.DataFrame([rest]).write_parquet(place / f"{row['user']}.parquet")
    reviews = read_reviews(folder)
    assert sorted(zip(reviews.users, reviews.items, strict=True)) == [("Zoë", "lamp"), ("ann", "desk"), ("ann", "lamp")]
    assert reviews.sources == [str(folder)]


def test_standard_input_is_read_like_a_file(tmp_path, monkeypatch):
    packed = gzip.compress(csv_of(ROWS).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    reviews = read_reviews("-")
    expect(reviews)
    assert reviews.sources == ["standard input"]


# ---- addresses


@pytest.fixture
def bucket():
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/a.csv", csv_of(ROWS[:2]).encode())
    store.pipe("/bucket/b.csv.gz", gzip.compress(csv_of(ROWS[2:]).encode()))
    yield "memory://bucket"
    store.rm("/bucket", recursive=True)


def test_an_address_a_folder_and_a_pattern_of_addresses_are_read(tmp_path, bucket):
    for given in (bucket, f"{bucket}/*.csv*", [f"{bucket}/a.csv", f"{bucket}/b.csv.gz"]):
        expect(read_reviews(given))
    (tmp_path / "r.csv").write_text(csv_of(ROWS))
    expect(read_reviews((tmp_path / "r.csv").as_uri()))
    prepared = prepare_corpus([bucket], tmp_path / "corpus", SourceRequest(), min_reviews=1)
    assert prepared.facts["sources"] == ["memory://bucket/a.csv", "memory://bucket/b.csv.gz"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("memory://nowhere/a.csv", "no such file or bucket"),
        ("memory://nowhere/*.csv", "there is no file"),
        ("nothing://bucket/a.csv", "the address cannot be read.*nothing"),
    ],
)
def test_what_is_not_at_an_address_is_said(address, words):
    with pytest.raises(InputError, match=words) as refused:
        read_reviews(address)
    assert address in str(refused.value)


def test_a_store_that_fails_is_named_with_its_own_words(monkeypatch, bucket):
    def denied(*_, **__):
        raise RuntimeError("Unable to locate credentials")

    monkeypatch.setattr(MemoryFileSystem, "open", denied)
    with pytest.raises(
        InputError, match=r"a\.csv: the address cannot be read .*Unable to locate credentials.*credentials"
    ):
        read_reviews(f"{bucket}/a.csv")


# ---- encodings


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig", "shift_jis", "gb18030", "koi8-r"])
def test_the_encoding_is_recognised_or_can_be_said(tmp_path, encoding):
    words = {
        "shift_jis": "音質がとても良くて、値段も手頃です。毎日使っていますが、壊れる気配がありません。",
        "gb18030": "音质非常好，价格也很合理，每天都在用，完全没有坏的迹象，推荐给大家。",
        "koi8-r": "Звук отличный, цена разумная, пользуюсь каждый день и очень доволен покупкой.",
    }.get(encoding, "Schöne Töne, größere Bässe, für den Preis völlig in Ordnung. Très léger, même trop.")
    rows = [{"user": f"u{n}", "item": f"i{n % 3}", "rating": 4, "text": f"{words} {n}"} for n in range(30)]
    path = tmp_path / "reviews.csv"
    path.write_bytes(csv_of(rows).encode(encoding))
    expect(read_reviews(path, encoding=encoding), rows)
    found = read_reviews(path)
    expect(found, rows)
    assert bool(found.encodings) == (encoding != "utf-8-sig")


def test_one_damaged_line_does_not_change_the_encoding(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(csv_of(ROWS).encode() + b"eve,lamp,4,caf\xe9\n")
    reviews = read_reviews(path)
    assert (len(reviews), reviews.ledger.counts) == (3, {"not UTF-8": 1})
    assert reviews.encodings == {}


def test_an_unknown_encoding_and_a_wrong_one_are_refused(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(csv_of(ROWS).encode())
    with pytest.raises(UsageError, match="no encoding 'klingon'"):
        read_reviews(path, encoding="klingon")
    with pytest.raises(InputError, match="utf-32"):
        read_reviews(path, encoding="utf-32")


# ---- ratings and values


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("4,5", 4.5),
        ("5 stars", 5),
        ("1 star", 1),
        ("4.0 out of 5 stars", 4),
        ("4/5", 4),
        ("3 / 5", 3),
        ("★★★★", 4),
        ("★★★★☆", 4),
        ("4 Sterne", 4),
        ("3 von 5", 3),
        (" 2 ", 2),
    ],
)
def test_ratings_as_people_write_them(tmp_path, written, value):
    (tmp_path / "r.csv").write_text(f'{HEADER}a,b,"{written}",fine\n')
    assert read_reviews(tmp_path / "r.csv").ratings.tolist() == [value]


@pytest.mark.parametrize(
    "written", ["", "five", "4,567", "1_0", "★ or so", "4 of", "5 apples", "٤ stars or", True, [5], None]
)
def test_what_is_no_rating_is_none(written):
    assert read_rating(written) is None


def test_per_cent_and_out_of_ten_need_their_scale(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(f"{HEADER}a,b,80 %,fine\nc,d,30%,bad\n")
    with pytest.raises(InputError, match=r"rating is not out of 5, '80 %'.*rating_range"):
        read_reviews(path)
    reviews = read_reviews(path, rating_range=(0, 100))
    assert reviews.scale.to_stars(reviews.ratings).tolist() == pytest.approx([4.2, 2.2])
    path.write_text(f"{HEADER}a,b,8/10,fine\nc,d,4/5,bad\n")
    reviews = read_reviews(path, rating_range=(1, 10))
    assert reviews.ratings.tolist() == [8]
    assert [one.value for one in reviews.ledger.rejections] == ["'4/5'"]


def test_every_rejection_shows_the_value_that_caused_it(tmp_path):
    path = tmp_path / "r.jsonl"
    rows = [{**ROWS[0], **odd} for odd in ({"rating": "eleven"}, {"rating": 6}, {"user": ["a"]}, {"text": 3}, {})]
    path.write_text("\n".join(map(json.dumps, rows)) + "\nnonsense")
    ledger = read_reviews(path, rating_range=(1, 5)).ledger
    assert [one.value for one in ledger.rejections] == ["'eleven'", "6", "['a']", "3", "'nonsense'"]
    assert "line 1, 'eleven')" in ledger.summary()


def test_a_missing_header_is_suspected_and_columns_can_be_numbered(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(csv_of(ROWS, header=""))
    with pytest.raises(InputError, match=r"first line looks like a review.*ann, lamp, 5.*columns={\"user\": \"1\""):
        read_reviews(path)
    expect(read_reviews(path, columns={"user": "1", "item": "2", "rating": "3", "text": "4"}))


def test_the_columns_chosen_and_the_encoding_are_in_the_facts(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(csv_of(ROWS, header="customer,sku,stars,comment\n").encode("utf-16"))
    corpus = build_corpus(read_reviews(path), min_reviews=1)
    assert corpus.facts["columns"] == {"user": "customer", "item": "sku", "rating": "stars", "text": "comment"}
    assert corpus.facts["encodings"] == {str(path): "utf-16"}


def test_of_repeated_pairs_the_latest_by_date_wins(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating,text,date\na,x,5,later,2024-02-01\na,x,1,earlier,2024-01-01\nb,y,3,other,\n")
    assert build_corpus(read_reviews(path), min_reviews=1).text(0) == "later"


# ---- items and pairs come from the same places


@pytest.mark.parametrize("kind", ["csv", "json array", "xlsx", "zip", "address", "utf-16"])
def test_items_and_pairs_are_read_from_whatever_reviews_are_read_from(tmp_path, kind):
    table = "item,user,title\nlamp,ann,Lämp\ndesk,Zoë,Desk\n"
    rows = [line.split(",") for line in table.splitlines()]
    path = tmp_path / "things"
    if kind == "json array":
        path.write_text(json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]], indent=2))
    elif kind == "xlsx":
        workbook(rows, path)
    elif kind == "zip":
        archive(path, {"things.csv": table})
    else:
        path.write_bytes(table.encode("utf-16" if kind == "utf-16" else "utf-8"))
    place = path.as_uri() if kind == "address" else path
    assert {name: text.title for name, text in read_items(place).texts.items()} == {"lamp": "Lämp", "desk": "Desk"}
    found = read_pairs(place)
    assert (found.pairs, found.extra_names) == ([("ann", "lamp"), ("Zoë", "desk")], ["title"])
    assert found.extras == [["Lämp"], ["Desk"]]


def test_pairs_may_be_numbered_named_or_refused_with_their_value(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("ann,lamp\nbob,desk\n")
    assert read_pairs(path, columns={"user": "1", "item": "2"}).pairs == [("ann", "lamp"), ("bob", "desk")]
    path.write_text("who,sku\nann,lamp\n")
    assert read_pairs(path, columns={"user": "who"}).pairs == [("ann", "lamp")]
    path.write_text('{"user": "ann", "item": ["lamp"]}')
    with pytest.raises(InputError, match=r"line 1: the item is neither text nor a number, \['lamp'\]"):
        read_pairs(path)
    with pytest.raises(UsageError, match="no role 'rating'"):
        read_pairs(path, columns={"rating": "x"})
