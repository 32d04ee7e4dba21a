"""Two steps of a method on a tiny model, with each of its switches and without it.

What is switched off is as the stage has it by default. Where the weights come out the same, the
switch does nothing there: a ratio method that makes one update a batch, for example.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.methods.lay import laid_over
from posttrain.methods.method import Method
from posttrain.operations.stage_alone import run_alone, stage_function
from posttrain.stage.config import StageConfig
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Task

ALL_OF_IT = "all of it"
"""What is switched off where everything is."""

_ALGORITHM = "algorithm"
# As a share of how far two steps move a weight: what rounding makes of equal mathematics is less.
_NOTHING = 1e-3
_UNDER: Mapping[str, Mapping[str, Any]] = {
    "rl": {
        "problems_per_step": 16,
        "group_size": 6,
        "max_tokens": 8,
        "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    },
    "preference": {
        "optimization": {"learning_rate": 1e-3, "warmup_steps": 0},
        "sampling": {"max_tokens": 8},
    },
    "sft": {"optimization": {"learning_rate": 1e-3, "warmup_steps": 0}},
}
"""Sections that are checked, and the tiny budget that lies under a method's settings."""
_OVER = {"steps": 2}
# Of two lengths, for methods that act on length.
_TAUGHT = ["#### 1", "so #### 2"]


@dataclass(frozen=True)
class SwitchEffect:
    """What it does to the weights that a switch is not there."""

    method: str
    switch: str
    """Its place in a recipe, or all that the method sets."""
    change: float | None
    """Largest change of a weight, as a share of the largest that training made; None where it
    could not be run without."""
    remark: str = ""
    """Why it could not."""

    @property
    def acts(self) -> bool:
        """True where the weights are others without it."""
        return self.change is None or self.change > _NOTHING


@dataclass(frozen=True)
class TinyWorld:
    """A tiny policy with problems, probed samples and solve rates."""

    inputs: Mapping[str, Mapping[str, Path]]
    """What a stage of each section is given."""
    tasks: Mapping[str, Task]
    folder: Path


def make_tiny_world(folder: Path, tasks: Mapping[str, Task]) -> TinyWorld:
    """Train a policy that guesses between two answers, and probe it.

    Args:
        folder: Where everything is written.
        tasks: What each section of a recipe is for.

    Returns:
        The world; about a second of work.

    """
    policy, problems = _guesser(folder / "guesser"), folder / "problems.parquet"
    _write_problems(problems)
    samples, rates = folder / "samples.parquet", folder / "solve_rates.parquet"
    stage_function(tasks["probe"])(
        tasks["probe"].config.parse({"max_tokens": 8}, where="probe"),
        {"policy": policy, "problems": problems},
        {"samples": samples, "solve_rates": rates},
        StageContext.quiet(folder / "probe"),
    )
    given = {"policy": policy, "problems": problems}
    return TinyWorld(
        {
            "rl": {**given, "solve_rates": rates},
            "preference": {**given, "samples": samples},
            "sft": {"policy": policy, "traces": samples},
        },
        tasks,
        folder,
    )


def switch_effects(method: Method, world: TinyWorld) -> Iterator[SwitchEffect]:
    """Run a method with everything it sets, then without each switch, and without all of them.

    A switch that is set to its default has no line.

    Args:
        method: The method.
        world: Where it runs.

    Yields:
        The effect of all together, then of each; nothing of a method that sets no such section.

    Raises:
        UserError: The method itself cannot be run.

    """
    for section in method.sets.keys() & _UNDER.keys():
        said = method.sets[section] or {}
        # What reads further models, such as a reward model, has none in a tiny world.
        if not _without(said) or "inputs" in said:
            continue
        start = _weights(world.inputs[section]["policy"])
        whole = _trained(world, section, said, f"{method.name}-whole")
        moved = _distance(start, whole)
        for switch, rest in {ALL_OF_IT: {}, **_without(said)}.items():
            place = switch if switch == ALL_OF_IT else f"{section}.{switch}"
            try:
                if _config(world, section, rest) == _config(world, section, said):
                    continue
                other = _trained(world, section, rest, f"{method.name}-{switch}")
            except (UserError, ValueError) as error:
                yield SwitchEffect(method.name, place, None, str(error))
                continue
            yield SwitchEffect(method.name, place, _distance(whole, other) / moved)


def _without(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings without each of them, one at a time, an algorithm's own one by one."""
    found = {
        name: {key: each for key, each in said.items() if key != name}
        for name in said
        if name != _ALGORITHM
    }
    algorithm = said.get(_ALGORITHM) or {}
    for name in algorithm:
        rest = {key: each for key, each in algorithm.items() if key != name}
        found[f"{_ALGORITHM}.{name}"] = {**said, _ALGORITHM: rest}
    return found


def _trained(world: TinyWorld, section: str, said: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Weights after two steps."""
    task, folder = world.tasks[section], world.folder / name
    config = _config(world, section, said)
    return _weights(run_alone(task, config, world.inputs[section], folder)["policy"])


def _config(world: TinyWorld, section: str, said: Mapping[str, Any]) -> StageConfig:
    values = laid_over(laid_over(_UNDER[section], said), _OVER)
    return world.tasks[section].config.parse(values, where=section)


def _weights(policy: Path) -> dict[str, Any]:
    from posttrain.learning.models.load import load_policy

    return dict(load_policy(policy).model.state_dict())


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def _problems() -> list[Any]:
    """The answer is 1 where the prompt says up, and 2 where it says down."""
    from posttrain.data.schemas import Problem

    sides = (("up", "1"), ("down", "2"))
    return [
        Problem(side, f"{side} {index} =", answer, index % 2, "exact")
        for index in range(20)
        for side, answer in sides
    ]


def _write_problems(path: Path) -> None:
    from posttrain.data.schemas import IDENTITY, PROBLEMS, problems_table, with_row_ids
    from posttrain.data.tables import write_table

    write_table(with_row_ids(problems_table(_problems()), IDENTITY["problems"]), path, PROBLEMS)


def _guesser(path: Path) -> Path:
    """Save a policy that learned from a teacher who is wrong one time in three."""
    import torch

    from posttrain.data.rows import TokenTable, encode_rows
    from posttrain.learning.models.build import build_llama
    from posttrain.learning.models.load import save_policy
    from posttrain.learning.models.logprobs import wanted_logprobs
    from posttrain.learning.models.tokenizer import train_tokenizer

    problems = _problems()
    tokenizer = train_tokenizer([problem.prompt for problem in problems] + _TAUGHT, vocab_size=280)
    model = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=0, max_length=64)
    prompts = [problem.prompt for problem in problems for _ in range(3)]
    taught = [text for each in problems for text in (*_TAUGHT, f"#### {each.answer}")]
    table = TokenTable(encode_rows(tokenizer, prompts, taught), pad=tokenizer.pad_token_id)
    batch = table.batch(range(len(prompts)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        torch.autograd.backward([-logprobs.mean()])
        optimizer.step()
        optimizer.zero_grad()
    save_policy(model, tokenizer, path)
    return path
