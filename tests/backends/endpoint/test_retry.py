"""How long to wait."""

from datetime import UTC, datetime

import pytest

from posttrain.backends.endpoint import client

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def half_a_second(monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT_S", 0.5)


@pytest.mark.parametrize(("attempt", "low", "high"), [(0, 0.25, 0.5), (3, 2, 4), (20, 30, 60)])
def test_waits_double_up_to_a_minute_and_vary(attempt, low, high):
    waits = [client.wait_seconds(attempt, {}) for _ in range(200)]
    assert low <= min(waits) < max(waits) <= high
    assert max(waits) - min(waits) > (high - low) / 2


def test_the_server_may_ask_for_more_but_not_for_hours():
    assert client.wait_seconds(0, {"retry-after": "7"}) == 7
    assert client.wait_seconds(0, {"retry-after": "7200"}) == 60
    assert client.wait_seconds(0, {"retry-after": "0"}) >= 0.25
    date = "Sat, 21 Nov 2026 12:00:09 GMT"
    assert client.wait_seconds(0, {"retry-after": date}, now=NOON) == 9
    past = "Sat, 21 Nov 2026 11:00:00 GMT"
    assert client.wait_seconds(0, {"retry-after": past}, now=NOON) <= 0.5


@pytest.mark.parametrize("nonsense", ["", "soon", "nan", "-5"])
def test_a_header_that_says_nothing_changes_nothing(nonsense):
    assert 0.25 <= client.wait_seconds(0, {"retry-after": nonsense}) <= 0.5
