"""What an error may show of a URL."""

import pytest

from posttrain.stage.errors import masked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/runs", "postgresql://db/runs"),
        ("postgresql://me:hunter2@db:5432/runs", "postgresql://***@db:5432/runs"),
        ("postgresql+psycopg://:hunter2@db/runs", "postgresql+psycopg://***@db/runs"),
        ("https://hunter2@github.com/a/b", "https://***@github.com/a/b"),
        ("postgresql://me:hunt%40er2@[::1]:5432/runs", "postgresql://***@[::1]:5432/runs"),
        ("postgresql://me:hunt@er2@db/runs", "postgresql://***@db/runs"),
        ("postgresql://me:hunt/er2@db/runs", "postgresql://***@db/runs"),
        ("postgresql://me:hunt?er#2@db/runs", "postgresql://***@db/runs"),
        ("postgresql://me:hunt:er2@a:1,b:2/runs", "postgresql://***@a:1,b:2/runs"),
        ("postgresql://me:hunter2@/runs?host=/tmp", "postgresql://***@/runs?host=/tmp"),
        (
            "postgresql://db/runs?user=me&password=hunter2",
            "postgresql://db/runs?user=me&password=***",
        ),
        (
            "postgresql://db/runs?sslPassword=hunter2&port=1",
            "postgresql://db/runs?sslPassword=***&port=1",
        ),
        ("http://host/x?access_token=hunter2#top", "http://host/x?access_token=***#top"),
        ("http://127.0.0.1:5000/#/models", "http://127.0.0.1:5000/#/models"),
        ("https://host/models/mini@v1", "https://host/models/mini@v1"),
        ("hf://datasets/a/b@main", "hf://datasets/a/b@main"),
        ("sqlite:////home/me@work/ledger.db", "sqlite:////home/me@work/ledger.db"),
        ("s3://bucket/key?versionId=a@b", "s3://bucket/key?versionId=a@b"),
        ("mail me@host about mini@v1", "mail me@host about mini@v1"),
    ],
)
def test_a_url_is_shown_without_who_logs_in_and_how(url, shown):
    assert masked(url) == shown
    sentence = f"cannot open {url} nor ('{url}'): see http://host/doc"
    assert masked(sentence) == f"cannot open {shown} nor ('{shown}'): see http://host/doc"


def test_every_url_of_a_text_is_masked_line_by_line():
    text = "from http://a:hunter2@x/1\nto http://b:hunter2@y/2 and http://z/3@4"
    assert masked(text) == "from http://***@x/1\nto http://***@y/2 and http://z/3@4"


def test_what_can_be_read_in_two_ways_is_hidden():
    # By the standard `me` is the host and 12 its port, yet drivers take 12/34 for a password.
    assert masked("postgresql://me:12/34@db/runs") == "postgresql://***@db/runs"
