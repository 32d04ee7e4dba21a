"""What becomes of missed ticks, under a simulated clock."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from posttrain.operations.schedule.policy import decide
from posttrain.operations.schedule.schedule import CronSchedule, paused_or_resumed
from posttrain.operations.schedule.times import is_tick, next_ticks, ticks_between

HOUR = 3600.0
BERLIN = ZoneInfo("Europe/Berlin")


def declared(missed="latest", backfill=0, **fields):
    given = {"cron": "0 * * * *", "since": 0.0, **fields}
    return CronSchedule("s", ".", on_missed=missed, backfill=backfill, **given)


def chosen(schedule, ticks, now, known=()):
    return [v.due for v in decide(schedule, ticks, known=frozenset(known), now=now) if v.runs]


@pytest.mark.parametrize(
    ("missed", "backfill", "expected"),
    [
        ("skip", 0, []),
        ("latest", 0, [5 * HOUR]),
        ("backfill", 2, [4 * HOUR, 5 * HOUR]),
        ("backfill", 9, [3 * HOUR, 4 * HOUR, 5 * HOUR]),
    ],
)
def test_five_hours_of_which_two_were_seen(missed, backfill, expected):
    ticks = [hour * HOUR for hour in range(1, 6)]
    now = 5.5 * HOUR
    verdicts = decide(declared(missed, backfill), ticks, known=frozenset({HOUR, 2 * HOUR}), now=now)
    assert [verdict.due for verdict in verdicts if verdict.runs] == expected
    # Whatever the policy, each of the three missed ones has exactly one verdict and a reason.
    assert [verdict.due for verdict in verdicts] == [3 * HOUR, 4 * HOUR, 5 * HOUR]
    assert verdicts[0].reason.startswith("missed by 2 h, one of 3; ")
    assert verdicts[0].reason.endswith(f"by --on-missed {declared(missed, backfill).missed()}")


def test_a_tick_is_missed_only_after_its_grace():
    ticks = [HOUR]
    assert decide(declared("skip"), ticks, known=frozenset(), now=HOUR + 119) == []
    assert decide(declared("skip"), ticks, known=frozenset(), now=HOUR - 5) == []
    (verdict,) = decide(declared("skip"), ticks, known=frozenset(), now=HOUR + 121)
    assert not verdict.runs


def test_the_one_that_is_due_just_now_is_the_latest():
    ticks = [HOUR, 2 * HOUR, 3 * HOUR]
    assert chosen(declared(), ticks, now=3 * HOUR + 10) == []
    # Nor is anything made good that is older than a tick that did run.
    assert chosen(declared(), ticks, now=4 * HOUR - 1, known=[3 * HOUR]) == []


def test_nothing_from_before_it_was_declared_or_while_it_was_paused():
    ticks = [HOUR, 2 * HOUR, 3 * HOUR]
    assert chosen(declared("backfill", 9, since=2.5 * HOUR), ticks, now=9 * HOUR) == [3 * HOUR]
    assert decide(declared(paused=True), ticks, known=frozenset(), now=9 * HOUR) == []
    before = declared()
    assert paused_or_resumed(before, paused=False) == before
    resumed = paused_or_resumed(paused_or_resumed(before, paused=True), paused=False)
    assert not resumed.paused
    assert resumed.since > before.since


def test_any_story_of_clocks_and_downtimes_decides_each_tick_once():
    """The clock jumps, both ways, while the worker comes and goes; nothing is lost or doubled."""
    rng = random.Random(0)
    for _ in range(100):
        schedule = declared(*rng.choice([("skip", 0), ("latest", 0), ("backfill", 3)]))
        known, ran, now = set(), [], 0.0
        while now < 200 * HOUR:
            now += rng.choice([60.0, 300.0, HOUR, 30 * HOUR, -HOUR])
            now = max(now, 0.0)
            ticks = [hour * HOUR for hour in range(1, int(now // HOUR) + 2)]
            for verdict in decide(schedule, ticks, known=frozenset(known), now=now):
                assert verdict.due not in known
                known.add(verdict.due)
                ran += [verdict.due] * verdict.runs
            for tick in ticks:
                if now - schedule.grace_seconds <= tick <= now and tick not in known:
                    known.add(tick)
                    ran.append(tick)
        assert len(ran) == len(set(ran))
        due = {hour * HOUR for hour in range(1, int((now - schedule.grace_seconds) // HOUR) + 1)}
        assert due - known <= {tick for tick in due if tick >= now - schedule.grace_seconds}


def walls(cron, start, hours):
    """Instants in Berlin's and in universal time."""
    schedule = CronSchedule("s", ".", cron=cron, timezone="Europe/Berlin", since=0)
    begun = start.replace(tzinfo=BERLIN).timestamp()
    ticks = ticks_between(schedule, begun, begun + hours * HOUR)
    assert all(is_tick(schedule, tick) and not is_tick(schedule, tick + 60) for tick in ticks)
    # Wherever one starts to look, the same instants are seen: none twice, none left out.
    for cut in ticks:
        split = ticks_between(schedule, begun, cut)
        assert split + ticks_between(schedule, cut, begun + hours * HOUR) == ticks
        assert next_ticks(schedule, cut - 1, 1) == [cut]
    return [datetime.fromtimestamp(tick, BERLIN).strftime("%d %H:%M %Z") for tick in ticks]


def test_a_nightly_run_when_the_clock_skips_an_hour_and_when_it_repeats_one():
    # On 29 March there is no 02:30: it comes as 01:30 before the change.
    assert walls("30 2 * * *", datetime(2026, 3, 27, 12), 72) == [
        "28 02:30 CET", "29 01:30 CET", "30 02:30 CEST",
    ]  # fmt: skip
    # On 25 October there are two: the first counts.
    assert walls("30 2 * * *", datetime(2026, 10, 23, 12), 72) == [
        "24 02:30 CEST", "25 02:30 CEST", "26 02:30 CET",
    ]  # fmt: skip


def test_an_hourly_run_over_both_changes():
    assert walls("0 * * * *", datetime(2026, 3, 29, 0, 30), 4) == [
        "29 01:00 CET", "29 03:00 CEST", "29 04:00 CEST", "29 05:00 CEST",
    ]  # fmt: skip
    assert walls("0 * * * *", datetime(2026, 10, 25, 0, 30), 5) == [
        "25 01:00 CEST", "25 02:00 CEST", "25 03:00 CET", "25 04:00 CET",
    ]  # fmt: skip


def test_a_downtime_over_the_change_makes_each_night_good_once():
    schedule = CronSchedule(
        "s", ".", "30 2 * * *", timezone="Europe/Berlin", on_missed="backfill", backfill=9, since=0
    )
    last = datetime(2026, 10, 23, 2, 30, tzinfo=BERLIN).timestamp()
    now = datetime(2026, 10, 27, 8, tzinfo=BERLIN).timestamp()
    made = chosen(schedule, ticks_between(schedule, last, now), now)
    days = [datetime.fromtimestamp(tick, UTC) for tick in made]
    assert [day.day for day in days] == [24, 25, 26, 27]
    assert [later - day for day, later in zip(days, days[1:], strict=False)] == [
        timedelta(hours=24), timedelta(hours=25), timedelta(hours=24),
    ]  # fmt: skip
