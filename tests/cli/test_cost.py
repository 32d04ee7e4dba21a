"""`posttrain cost` and `logs`: what stages took and printed, and budgets that end a run."""

import json
import os
import sqlite3
import sys
import threading
import time
from types import ModuleType

import pytest

from posttrain.cli.cost import drawn_here, told_of_cost
from posttrain.operations.costs import StageCost
from posttrain.pipeline.cost_settings import CostSettings
from posttrain.pipeline.execution.meter import StageMeter, _difference
from posttrain.provenance.ledger.usage import Usage, total_usage

RATES = CostSettings.parse(
    {"currency": "EUR", "cpu_hour": 0.5, "gpu_hour": 2.0, "kwh": 0.25}, where="cost"
)
# Half an hour of two cores and of one GPU, and 2 kWh.
USAGE = Usage(seconds=1800.0, cpu_seconds=3600.0, gpu_seconds=1800.0, joules=7.2e6)


def test_money_is_hours_and_energy_at_the_stated_rates():
    assert RATES.money(USAGE) == pytest.approx(0.5 + 1.0 + 0.5)
    assert CostSettings().money(USAGE) is None
    assert told_of_cost(USAGE, RATES, 1200) == (
        "1 CPU hours, 0.5 GPU hours, 2 kWh, 1,200 tokens drawn, 2 EUR"
    )


def test_what_nobody_measured_adds_nothing():
    unknown = Usage(seconds=10.0, cpu_seconds=None)
    assert total_usage([unknown, USAGE]) == Usage(1810.0, 3600.0, 1800.0, 7.2e6)
    assert total_usage([]) == Usage()


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"cpu_hours": 0.9}, "1 of 0.9 CPU hours (cost.budget.cpu_hours)"),
        ({"gpu_hours": 0.4}, "0.5 of 0.4 GPU hours (cost.budget.gpu_hours)"),
        ({"money": 1.5}, "2 of 1.5 EUR (cost.budget.money)"),
        ({"cpu_hours": 1.0, "gpu_hours": 0.5, "money": 2.0}, ""),
    ],
)
def test_a_budget_is_gone_beyond_and_not_reached(budget, said):
    settings = RATES.model_copy(update={"budget": RATES.budget.model_copy(update=budget)})
    assert settings.beyond(USAGE) == said


def counter(folder, name, microjoules):
    package = folder / name
    package.mkdir(exist_ok=True)
    (package / "energy_uj").write_text(f"{microjoules}\n")
    (package / "max_energy_range_uj").write_text("1000000\n")


def test_energy_is_the_share_of_the_packages_that_the_processor_time_has(tmp_path):
    """A sysfs of one's own: no machine of the tests lets its counters be read."""
    counter(tmp_path, "intel-rapl:0", 900_000)
    counter(tmp_path, "intel-rapl:0:0", 5)  # A part of the package: not counted twice.
    meter = StageMeter(powercap=tmp_path)
    busy = sum(os.times()[:2])
    while sum(os.times()[:2]) < busy + 0.1:
        pass
    counter(tmp_path, "intel-rapl:0", 100_000)
    usage = meter.read(cpu_seconds=1e9)
    # All of it, over the end of the counter: 1,000,000 - 900,000 + 100,000 microjoules.
    assert usage.joules == pytest.approx(0.2)
    assert meter.read(cpu_seconds=None).joules is None
    assert StageMeter(powercap=tmp_path / "none").read(1.0).joules is None
    assert _difference({}, {}) is None


def test_gpus_count_for_themselves(tmp_path, monkeypatch):
    """With a stand-in for NVML, as no GPU is here: millijoules of devices by number and UUID."""
    taken = {0: 1000, "GPU-a": 500}
    library = ModuleType("pynvml")
    library.NVMLError = type("NVMLError", (Exception,), {})
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetHandleByIndex = library.nvmlDeviceGetHandleByUUID = lambda name: name
    library.nvmlDeviceGetTotalEnergyConsumption = taken.__getitem__
    monkeypatch.setitem(sys.modules, "pynvml", library)
    meter = StageMeter(("0", "GPU-a"), powercap=tmp_path)
    taken |= {0: 3000, "GPU-a": 700}
    usage = meter.read(1.0)
    assert usage.joules == pytest.approx(2.2)
    assert usage.gpu_seconds == pytest.approx(2 * usage.seconds)

    def refuse(_):
        raise library.NVMLError("not supported")

    library.nvmlDeviceGetTotalEnergyConsumption = refuse
    assert meter.read(1.0).joules is None


def test_stages_that_ran_are_counted_and_those_that_did_not_are_not(toy, posttrain):
    toy.recipe("cost: {currency: EUR, cpu_hour: 3600}")
    toy.run()
    toy.run("third.amount=2")
    told = json.loads(posttrain("cost", "--json").out)
    assert [each["attempts"] for each in told["stages"]] == [0, 0, 1]
    third, own = told["stages"][2]["usage"], told["this_run"]
    assert third["cpu_seconds"] > 0
    assert third["seconds"] == own["seconds"]
    # At 3600 an hour a second of a core is one.
    assert own["money"] == pytest.approx(own["cpu_seconds"])
    behind = [each["behind"]["cpu_seconds"] for each in told["stages"]]
    assert told["behind"]["cpu_seconds"] == pytest.approx(sum(behind))
    assert all(seconds > 0 for seconds in behind)
    shown = posttrain("cost").out
    assert "EUR" in shown
    assert "nobody counted" not in shown


def test_what_nobody_counted_is_said_and_not_shown_as_nothing(toy, posttrain):
    toy.run()
    with sqlite3.connect(toy.root / ".posttrain/ledger.db") as ledger:
        ledger.execute("DELETE FROM annotations WHERE name = 'usage'")
    done = posttrain("cost")
    assert done.code == 0
    assert "note: nobody counted what 3 stages took" in done.out
    (whole,) = (line for line in done.out.splitlines() if line.startswith("all behind it"))
    assert whole.split() == ["all", "behind", "it", "0"]
    assert "USD" not in done.out


def test_a_stage_that_goes_beyond_the_budget_is_stopped_and_not_tried_again(toy, posttrain):
    toy.recipe(
        "run: {threads: 1, retries: 2}\ncost: {budget: {cpu_hours: 1.0e-7}}\nsecond: {mood: wait}"
    )
    done = posttrain("run", "--local")
    assert done.code == 1
    assert "CPU hours (cost.budget.cpu_hours)" in done.err
    # The first stage took more than a third of a millisecond: the second is not begun.
    assert done.err.count("second: running") == 0
    assert posttrain("run", "--local", "--set", "cost.budget.cpu_hours=-1").code == 2


@pytest.mark.slow
def test_a_stage_that_runs_is_stopped_once_the_budget_is_gone(toy, posttrain):
    toy.recipe("cost: {cpu_hour: 1, gpu_hour: 1, budget: {cpu_hours: 0.001}}\nfirst: {mood: wait}")
    spin = "    while config.mood.startswith"
    stage = toy.root / toy.package / "stage.py"
    stage.write_text(stage.read_text().replace("time.sleep(0.05)", "sum(range(100000))"))
    assert spin in stage.read_text()
    done = posttrain("run", "--local")
    assert done.code == 1
    assert "it was stopped" in done.err
    assert "cost.budget.cpu_hours" in done.err
    told = json.loads(posttrain("cost", "--json").out)
    # 0.001 hours were gone when it was stopped, and what was taken is counted though it failed.
    assert [each["usage"]["cpu_seconds"] >= 3.6 for each in told["stages"]] == [True]
    assert told["this_run"]["money"] >= 0.001


def test_tokens_of_a_run_are_of_what_it_executed_itself():
    stages = [
        StageCost("rl", "succeeded", 1, USAGE, USAGE, 100),
        StageCost("evaluate", "cached", 0, None, USAGE, 20),
        StageCost("again", "failed", 2, USAGE, USAGE, 3),
    ]
    assert drawn_here(stages) == 100


def test_logs_are_of_the_stage_that_failed_or_that_is_named(toy, posttrain):
    toy.recipe("second: {mood: fail}")
    assert posttrain("run", "--local").code == 1
    assert "RuntimeError: told to fail" in posttrain("logs").out
    assert "told to fail" not in posttrain("logs", "first").out
    assert len(posttrain("logs", "second", "-n", "2").out.splitlines()) == 2
    done = posttrain("logs", "secnd")
    assert done.code == 2
    assert "did you mean 'second'" in done.sentence


def test_a_log_is_followed_until_the_run_ends(toy, posttrain):
    stage = toy.root / toy.package / "stage.py"
    stage.write_text(stage.read_text().replace("    # a comment", '    print("hello")'))
    toy.recipe("first: {mood: wait}")
    runs = threading.Thread(target=lambda: toy.cli("run", "--local"))
    runs.start()

    while not (waiting := [*toy.root.glob(".posttrain/scratch/*/waiting")]):
        time.sleep(0.02)
    (waiting[0].parent / "go").touch()
    done = posttrain("logs", "--follow")
    runs.join()
    assert done.out.count("hello") == 3
    assert "first        | hello" in done.out
    assert done.err.splitlines()[-1].endswith(": succeeded")
