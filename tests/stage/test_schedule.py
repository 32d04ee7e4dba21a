"""Numbers that change with the step or after a metric: values by hand, and what is refused."""

import json
import pickle
from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig
from posttrain.stage.descriptions import DescribedJsonSchema
from posttrain.stage.errors import UserError
from posttrain.stage.identity import identity
from posttrain.stage.schedule import NumberSchedules, Schedulable, schedules_in
from posttrain.stage.shapes.base import ScheduleShape
from posttrain.stage.shapes.linear import Linear
from posttrain.stage.slots import InSlot, Part, Slot, parts_in


class Pull(Part, Schedulable):
    """A part whose number may be a schedule."""

    kind: Literal["pull"] = "pull"
    weight: float = Field(default=1.0, ge=0)


PULLS = Slot("pull", Pull, {"pull": Pull})


class Learner(Schedulable):
    """A config with numbers of all sorts."""

    rate: float = Field(default=0.1, gt=0)
    """Step size."""
    count: int = Field(default=4, ge=1)
    limit: float | None = None
    name: str = "x"
    low: float = 0.2
    high: float = 0.3
    pull: Annotated[Pull, InSlot(PULLS)] = Pull()
    pulls: tuple[Pull, ...] = ()

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def parse(**values):
    return Learner.parse(values, where="rl")


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        # From 1 to 16 in four steps, at the steps 0, 1, 2, 3, 4 and 9.
        ("linear", [1, 4.75, 8.5, 12.25, 16, 16]),
        # 16 - 15 * (1 + cos(pi p)) / 2 with cos(pi/4) = 0.70710678.
        ("cosine", [1, 3.19669914, 8.5, 13.80330086, 16, 16]),
        ("exponential", [1, 2, 4, 8, 16, 16]),
        ("step", [1, 1, 1, 1, 16, 16]),
        ({"kind": "step", "jumps": 2}, [1, 1, 8.5, 8.5, 16, 16]),
    ],
)
def test_a_number_goes_by_its_shape(shape, values):
    config = parse(rate={"from": 1, "to": 16, "over": 4, "shape": shape})
    assert [config.at(step).rate for step in (0, 1, 2, 3, 4, 9)] == pytest.approx(values)


def test_it_waits_before_it_goes():
    config = parse(rate={"from": 1, "to": 2, "over": 2, "after": 10})
    assert [config.at(step).rate for step in (0, 10, 11, 12)] == [1, 1, 1.5, 2]


def test_a_whole_number_stays_one():
    config = parse(count={"from": 2, "to": 4, "over": 8}, limit={"from": 0, "to": 1, "over": 4})
    counts = [config.at(step).count for step in range(9)]
    # 2.0 2.25 2.5 2.75 3.0 3.25 3.5 3.75 4.0, halves to the even neighbor.
    assert counts == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert all(type(each) is int for each in counts)
    assert config.at(1).limit == 0.25


def test_it_follows_a_metric_and_remembers_the_last_one():
    following = {"metric": "rl/entropy", "from": 0.01, "to": 0.0, "low": 0.2, "high": 0.6}
    schedules = NumberSchedules(parse(limit=following))
    assert schedules.followed == {"rl/entropy"}
    assert schedules.at(7).limit == 0.01
    schedules.observe({"rl/entropy": 0.5, "rl/reward": 1.0})
    assert schedules.at(7).limit == pytest.approx(0.0025)
    schedules.observe({"rl/reward": 1.0})
    assert schedules.metrics(7) == {"schedule/limit": pytest.approx(0.0025)}
    resumed = NumberSchedules(parse(limit=following))
    resumed.load_state_dict(json.loads(json.dumps(schedules.state_dict())))
    assert resumed.at(7) == schedules.at(7)
    assert schedules.state_dict() == {"seen": {"rl/entropy": 0.5}}
    schedules.observe({"rl/entropy": 9.0})
    assert schedules.at(0).limit == 0.0


def test_schedules_count_wherever_they_are():
    config = parse(
        pull={"kind": "pull", "weight": {"from": 0, "to": 1, "over": 2}},
        pulls=[{"weight": 5}, {"weight": {"from": 4, "to": 0, "over": 4}}],
    )
    assert [path for path, _ in schedules_in(config)] == ["pull.weight", "pulls.1.weight"]
    now = config.at(1)
    assert (now.pull.weight, now.pulls[0].weight, now.pulls[1].weight) == (0.5, 5, 3)
    assert list(schedules_in(now)) == []


def test_a_config_without_schedules_is_returned_as_it_is():
    config = parse(rate=0.5)
    assert config.at(3) is config
    assert NumberSchedules(config).at(3) is config


def test_a_schedule_is_dumped_as_it_was_written_and_parses_again():
    written = {
        "rate": {"from": 1.0, "to": 0.5, "over": 10, "shape": "cosine"},
        "pull": {"kind": "pull", "weight": {"from": 1.0, "to": 2.0, "over": 3}},
        "count": {"from": 1, "to": 8, "over": 7, "shape": {"kind": "step", "jumps": 7}},
    }
    config = parse(**written)
    for dumped in (config.model_dump(), config.model_dump(mode="json")):
        assert {name: dumped[name] for name in written} == written
        assert parse(**dumped) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert parse(rate=0.5).model_dump()["rate"] == 0.5


def test_a_schedule_is_in_the_identity():
    ramp = {"from": 1.0, "to": 0.5, "over": 10}
    said = {"from": 1.0, "to": 0.5, "over": 10}
    assert identity(parse(rate=ramp)) == {"rate": said}
    assert identity(parse(rate={**ramp, "shape": "cosine"})) == {
        "rate": {**said, "shape": {"kind": "cosine"}}
    }
    assert Linear in {type(part) for part in parts_in(parse(rate=ramp))}


RAMP = {"from": 1, "to": 2, "over": 3}


@pytest.mark.parametrize(
    ("field", "change", "sentence"),
    [
        ("rate", {"from": -1}, "rl.rate: input should be greater than 0, got -1"),
        ("rate", {"to": 0}, "rl.rate: input should be greater than 0, got 0"),
        ("count", {"to": 1.5}, "rl.count: input should be a valid integer, got a number with"),
        ("low", {"to": 0.4, "from": 0.1}, "rl: low is above high"),
        ("rate", {"ofer": 3}, "rl.rate.ofer: unknown key; did you mean 'over'?"),
        (
            "rate",
            {"over": None},
            "rl.rate: a schedule needs 'over', the number of steps that it takes",
        ),
        ("rate", {"over": 0}, "rl.rate.over: input should be greater than or equal to 1, got 0"),
        ("rate", {"from": "a"}, "rl.rate.from: input should be a number, got 'a'"),
        ("rate", {"low": 1}, "rl.rate: 'low' and 'high' are for a schedule that follows a metric"),
        ("rate", {"metric": "m"}, "rl.rate: a schedule with 'metric' does not go by steps"),
        (
            "rate",
            {"metric": "m", "over": None, "low": 2, "high": 2},
            "with 'metric' needs 'low' and 'high'",
        ),
        ("rate", {"shape": "cosin"}, "rl.rate.shape: there is no schedule 'cosin'; did you mean"),
        ("limit", {"to": 0, "shape": "exponential"}, "cannot go from 1 to 0; give both ends one"),
        ("name", {}, "rl.name: input should be a valid string"),
        ("pull", {}, "rl.pull: write the kind of pull"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(field, change, sentence):
    given = {name: value for name, value in {**RAMP, **change}.items() if value is not None}
    with pytest.raises(UserError) as error:
        parse(**{field: given})
    assert sentence in str(error.value)


def test_a_plain_config_takes_no_schedule():
    class Plain(StageConfig):
        rate: float = 0.1

    with pytest.raises(
        UserError,
        match=r"s\.rate: this number takes no schedule, as it is read once, before the first step",
    ):
        Plain.parse({"rate": RAMP}, where="s")


def test_an_editor_is_told_of_schedules():
    schema = Learner.model_json_schema(schema_generator=DescribedJsonSchema)
    rate = schema["properties"]["rate"]
    assert rate["description"] == "Step size."
    assert rate["default"] == 0.1
    number, scheduled = rate["anyOf"]
    assert number == {"exclusiveMinimum": 0, "type": "number"}
    definition = schema["$defs"][scheduled["$ref"].rpartition("/")[2]]
    assert {"from", "to", "over", "shape", "metric"} <= definition["properties"].keys()
    assert "anyOf" not in schema["properties"]["name"]


def test_a_shape_is_a_part_of_its_own():
    class Late(ScheduleShape):
        kind: Literal["late"] = "late"

        def value(self, start, end, progress):
            return start + (end - start) * progress**2

    assert parse(rate={**RAMP, "to": 5, "over": 2, "shape": Late()}).at(1).rate == 2.0


class Overshoot(ScheduleShape):
    """Gives the number that its spelling means; a config holds no NaN."""

    kind: Literal["overshoot"] = "overshoot"
    found: str

    def value(self, start, end, progress):
        return float(self.found)


@pytest.mark.parametrize("found", ["-5.0", "0.31", "nan", "inf"])
def test_a_shape_that_leaves_the_way_is_refused_by_name(found):
    way = {"from": 0.1, "to": 0.3, "over": 2, "shape": Overshoot(found=found)}
    schedules = NumberSchedules(parse(rate=way))
    assert schedules.at(0).rate == 0.1
    said = rf"schedule.overshoot: `value` gave {found} on the way from 0.1 to 0.3; let it give a"
    with pytest.raises(UserError, match=said):
        schedules.at(1)


def test_the_rounding_of_a_shape_is_no_overshoot():
    way = {"from": 0.1, "to": 0.3, "over": 2, "shape": Overshoot(found="0.30000000000000004")}
    assert NumberSchedules(parse(rate=way)).at(1).rate > 0.3


def test_nothing_follows_a_metric_that_is_nan():
    way = {"metric": "rl/x", "from": 0.1, "to": 0.3, "low": 0, "high": 1}
    schedules = NumberSchedules(parse(rate=way))
    schedules.observe({"rl/y": float("nan")})
    with pytest.raises(UserError, match="rl/x is NaN, and a schedule follows it; correct what"):
        schedules.observe({"rl/x": float("nan")})
