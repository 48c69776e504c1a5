"""Commands at s3:// addresses, against a server of moto's on this machine: `make test-buckets` installs it and s3fs."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from carp.cli import entry
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.storage import MANIFEST

BUCKET = "reviews"
NEEDED = ("moto", "flask", "s3fs", "boto3")
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}: make test-buckets installs them"
)


@pytest.fixture(scope="module")
def server():
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(server, tmp_path, monkeypatch):
    """A bucket of our own, and whatever may be known of this machine's own accounts put out of reach."""
    import boto3
    import s3fs

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield client
    for one in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=one["Key"])
    client.delete_bucket(Bucket=BUCKET)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def reviews(tmp_path):
    records = make_shop(people=12, things=8, reviews_per_person=6, seed=1).records()
    half = len(records) // 2
    for name, some in (("a.jsonl", records[:half]), ("b.jsonl", records[half:])):
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in some))
    return tmp_path


def carp(*words):
    return entry.main(list(map(str, words)))


def there(client, prefix):
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return {
        one["Key"].removeprefix(prefix): client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read()
        for one in found
    }


def test_every_stage_reads_and_writes_a_bucket_as_it_does_a_folder(bucket, reviews, tmp_path, single_thread):
    for name in ("a.jsonl", "b.jsonl"):
        bucket.upload_file(str(reviews / name), BUCKET, f"raw/{name}")
    assert carp("prepare", "a.jsonl", "b.jsonl", "--out", "corpus", "--min-reviews", "1") == 0
    assert carp("prepare", f"s3://{BUCKET}/raw/*.jsonl", "--out", f"s3://{BUCKET}/corpus", "--min-reviews", "1") == 0
    columns = {name: content for name, content in there(bucket, "corpus/").items() if name.endswith(".npy")}
    assert columns == {file.name: file.read_bytes() for file in (tmp_path / "corpus").glob("*.npy")}
    words = ("--model", "bias", "--device", "cpu", "--quiet")
    assert carp("train", f"s3://{BUCKET}/corpus", "--out", f"s3://{BUCKET}/model", *words) == 0
    assert carp("recommend", f"s3://{BUCKET}/model", "--all", "-n", "2", "--out", f"s3://{BUCKET}/best.csv") == 0
    assert carp("train", "corpus", "--out", "model", *words) == 0
    assert carp("recommend", "model", "--all", "-n", "2", "--out", "best.csv") == 0
    assert there(bucket, "best.csv")[""] == (tmp_path / "best.csv").read_bytes()
    assert len(Corpus.load("corpus")) == 73


def test_what_lies_in_a_bucket_is_replaced_only_if_asked_for(bucket, reviews, capsys):
    words = ["prepare", "a.jsonl", "--out", f"s3://{BUCKET}/corpus", "--min-reviews", "1"]
    assert carp(*words) == 0
    assert carp(*words) == 2
    assert "this already exists" in capsys.readouterr().err
    assert carp(*words, "--overwrite") == 0
    assert MANIFEST in there(bucket, "corpus/")


@pytest.mark.parametrize("words", [["prepare", "a.jsonl", "--out"], ["train", "--out", "model", "--model", "bias"]])
def test_a_bucket_that_is_not_there_is_told(bucket, reviews, capsys, words):
    assert carp(*words, "s3://no-such-bucket-here/corpus") == 1
    told = capsys.readouterr().err
    assert "s3://no-such-bucket-here/corpus" in told
    assert "Fix:" in told
    assert "Traceback" not in told
    assert [one["Name"] for one in bucket.list_buckets()["Buckets"]] == [BUCKET], "nor is it made"


def test_missing_credentials_are_told(bucket, reviews, capsys, monkeypatch):
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    assert carp("prepare", "a.jsonl", "--out", f"s3://{BUCKET}/corpus") == 1
    told = capsys.readouterr().err
    assert "credentials" in told.lower()
    assert "Traceback" not in told
    assert not there(bucket, "corpus/")
