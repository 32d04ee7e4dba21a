"""What becomes of missed ticks, under a simulated clock; the instants of a line, apart from it."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from posttrain.operations.schedule.policy import decide
from posttrain.operations.schedule.times import (
    Clock,
    clock_of,
    next_ticks,
    require_cron,
    ticks_between,
)
from tests.quick import first_now

HOUR = 3600.0


def decided(policy, ticks, now, known=(), laid_out=()):
    return decide(policy, ticks, known=set(known), laid_out=set(laid_out), now=now, grace=120.0)


def chosen(policy, ticks, now, known=(), laid_out=()):
    return [each.due for each in decided(policy, ticks, now, known, laid_out) if each.runs]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", []),
        ("latest", [5 * HOUR]),
        ("backfill:2", [4 * HOUR, 5 * HOUR]),
        ("backfill:9", [3 * HOUR, 4 * HOUR, 5 * HOUR]),
    ],
)
def test_five_hours_of_which_two_were_seen(policy, expected):
    ticks = [hour * HOUR for hour in range(1, 6)]
    verdicts = decided(policy, ticks, 5.5 * HOUR, {HOUR, 2 * HOUR})
    assert [verdict.due for verdict in verdicts if verdict.runs] == expected
    # Whatever the policy, each of the three missed ones has exactly one verdict and a reason.
    assert [verdict.due for verdict in verdicts] == [3 * HOUR, 4 * HOUR, 5 * HOUR]
    assert verdicts[0].reason.startswith("missed by 2 h, one of 3; ")
    assert verdicts[0].reason.endswith(f"by missed: {policy}")


def test_a_tick_is_missed_only_after_its_grace():
    assert decided("skip", [HOUR], HOUR + 119) == []
    assert decided("skip", [HOUR], HOUR - 5) == []
    (verdict,) = decided("skip", [HOUR], HOUR + 121)
    assert not verdict.runs


def test_latest_is_the_newest_missed_one_whatever_came_after_it():
    ticks = [HOUR, 2 * HOUR, 3 * HOUR]
    # The third has its own run, which is laid out or was begun.
    assert chosen("latest", ticks, now=3 * HOUR + 10, laid_out=[3 * HOUR]) == [2 * HOUR]
    assert chosen("latest", ticks, now=4 * HOUR - 1, known=[3 * HOUR]) == [2 * HOUR]


def test_one_outage_is_one_run_though_its_last_instants_are_missed_only_later():
    """Every minute, nobody there from 1 to 60 minutes, and there 30 s after the last of them."""
    minutes = [60.0 * number for number in range(1, 64)]
    known, ran = set(), {}
    for now in (3630.0, 3662.0, 3672.0, 3722.0, 3732.0, 3782.0):
        # From minute 61 on Prefect lays out what comes, and each is begun at once.
        known |= {tick for tick in minutes if 3660 <= tick <= now - 5}
        past = [tick for tick in minutes if tick <= now]
        laid_out = [tick for tick in past if tick >= 3660]
        for verdict in decided("latest", past, now, known, laid_out):
            known.add(verdict.due)
            ran[verdict.due] = verdict
    assert set(ran) == set(minutes[:60])
    assert [tick for tick, verdict in ran.items() if verdict.runs] == [3600.0]
    assert ran[3600.0].reason == "missed by 2 min, one of 1; made good by missed: latest"
    assert ran[3540.0].reason.endswith("skipped by missed: latest, as a later one is made good")


@pytest.mark.parametrize("stories", first_now([20, 200]))
def test_any_story_of_clocks_and_downtimes_decides_each_tick_once(stories):
    """The clock jumps, both ways, while the worker comes and goes; nothing is lost or doubled."""
    rng = random.Random(0)
    for _ in range(stories):
        policy = rng.choice(["skip", "latest", "backfill:3"])
        known, ran, now = set(), [], 0.0
        while now < 200 * HOUR:
            now += rng.choice([60.0, 300.0, HOUR, 30 * HOUR, -HOUR])
            now = max(now, 0.0)
            ticks = [hour * HOUR for hour in range(1, int(now // HOUR) + 2)]
            for verdict in decided(policy, ticks, now, known):
                assert verdict.due not in known
                known.add(verdict.due)
                ran += [verdict.due] * verdict.runs
            for tick in ticks:
                if now - 120 <= tick <= now and tick not in known:
                    known.add(tick)
                    ran.append(tick)
        assert len(ran) == len(set(ran))
        due = {hour * HOUR for hour in range(1, int((now - 120) // HOUR) + 1)}
        assert due - known <= {tick for tick in due if tick >= now - 120}


def scanned(matches, zone, begun, until):
    """Minutes of a span that match by the wall clock: another way than to follow a line."""
    moment = datetime.fromtimestamp(begun, UTC)
    while (moment := moment + timedelta(minutes=1)).timestamp() <= until:
        if matches(moment.astimezone(zone)):
            yield moment.timestamp()


@pytest.mark.parametrize(
    ("cron", "matches"),
    [
        # Four hundred instants, each found anew.
        pytest.param("*/5 * * * *", lambda wall: wall.minute % 5 == 0, marks=pytest.mark.slow),
        ("0 * * * *", lambda wall: wall.minute == 0),
        ("@hourly", lambda wall: wall.minute == 0),
        ("17,47 * * * *", lambda wall: wall.minute in (17, 47)),
    ],
)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC"])
@pytest.mark.parametrize("day", [(3, 7), (3, 28), (10, 24), (10, 31)])
def test_a_line_that_names_no_hour_runs_every_hour_over_a_change_of_the_clock(
    cron, matches, zone, day
):
    begun = datetime(2026, *day, 12, tzinfo=ZoneInfo(zone)).timestamp()
    until = begun + 36 * HOUR
    ticks = ticks_between(clock_of(cron, zone), begun, until)
    assert ticks == list(scanned(matches, ZoneInfo(zone), begun, until))
    # Wherever one starts to look, the same instants are seen: none twice, none left out.
    for cut in ticks[::7]:
        assert next_ticks(clock_of(cron, zone), cut - 1, 1) == [cut]


def test_a_zone_of_half_hours_keeps_its_own_clock():
    for zone in ("Australia/Lord_Howe", "Asia/Kolkata", "Asia/Kathmandu"):
        assert clock_of("0 * * * *", zone) == Clock("0 * * * *", zone)
    assert clock_of("0 2 * * *", "Europe/Berlin").timezone == "Europe/Berlin"


def walls(cron, start, hours):
    """Instants as the wall clock in Berlin says them."""
    zone = ZoneInfo("Europe/Berlin")
    begun = start.replace(tzinfo=zone).timestamp()
    ticks = ticks_between(clock_of(cron, "Europe/Berlin"), begun, begun + hours * HOUR)
    return [datetime.fromtimestamp(tick, zone).strftime("%d %H:%M %Z") for tick in ticks]


def test_a_nightly_run_when_the_clock_skips_an_hour_and_when_it_repeats_one():
    # On 29 March there is no 02:30: it comes as 01:30 before the change.
    assert walls("30 2 * * *", datetime(2026, 3, 27, 12), 72) == [
        "28 02:30 CET", "29 01:30 CET", "30 02:30 CEST",
    ]  # fmt: skip
    # On 25 October there are two: the first counts.
    assert walls("30 2 * * *", datetime(2026, 10, 23, 12), 72) == [
        "24 02:30 CEST", "25 02:30 CEST", "26 02:30 CET",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cron", "sentence"),
    [
        ("0 2 * *", "is not five fields"),
        ("61 2 * * *", "Prefect cannot read it"),
        ("0 0 30 2 *", "no day matches it"),
        ("0 0 * * 5L", "Prefect cannot read it"),
        ("0 0 29 2 1#1", "no day matches it"),
        ("*/70 * * * *", "every 70th of 60"),
        ("0 */24 * * *", "every 24th of 24"),
        ("@reboot", "is not five fields"),
        ("0 0 0 * * *", "is not five fields"),
    ],
)
def test_a_line_that_names_no_time_is_refused_in_a_sentence(cron, sentence):
    with pytest.raises(ValueError, match=sentence):
        require_cron(cron)


def test_lines_that_are_taken():
    for cron in ("@daily", "0 0 L * *", "0 0 29 2 *", "*/59 * * * *", "0 9-17 * * mon-fri"):
        assert require_cron(cron) == cron
    assert next_ticks(Clock("@daily", "UTC"), 0.0, 2) == [86400.0, 172800.0]
