"""What methods are tried on: a tiny policy with its problems, and what stages make of them."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.methods.lay import laid_over
from posttrain.operations.stage_alone import run_alone
from posttrain.pipeline.recipe_method import task_parameters
from posttrain.pipeline.stage_section import inputs_by_port, port_of
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.schedule import Schedulable
from posttrain.stage.spec import ArtifactKind, Task

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_FEW_STEPS: Mapping[str, Any] = {"optimization": {"learning_rate": 1e-3, "warmup_steps": 0}}
_BUDGETS: Mapping[str, Mapping[str, Any]] = {
    "probe": {"max_tokens": 8},
    "rl": {
        "problems_per_step": 16,
        "group_size": 6,
        "max_tokens": 8,
        "optimization": {"optimizer": "adamw", "learning_rate": 3e-3, "warmup_steps": 0},
    },
    "preference": {**_FEW_STEPS, "sampling": {"max_tokens": 8}},
    "reward": {**_FEW_STEPS, "steps": 4},
    # Its traces are the probe's samples, right ones and wrong ones.
    "sft": {**_FEW_STEPS, "require_verified": False},
    "synthesize": {"num_problems": 16, "num_heldout": 2},
}
"""Sections that can be run, and the tiny budget that lies under their settings."""

_MADE_IN = 4
"""Steps of a stage whose output another one only reads."""

# Room for an episode of a world, whose text is cut into single characters here.
_CONTEXT = 512
# With the form of an answer and without it, with a confidence and without one, of two lengths:
# what is paid for any of these differs within a group.
_TAUGHT = ("#### 1", "so #### 2", "2", "#### 1\nconfidence: .9")
_RIGHT = ("#### {}", "#### {}\nconfidence: .9")


class Tries(Environment, Schedulable):
    """Ask three times; each answer that ends as the problem's earns a third.

    Further roles hear what the policy said, and it hears them; they earn as it does.
    """

    kind: Literal["tries"] = "tries"
    peers: tuple[str, ...] = ()
    """Further roles that it asks."""
    noise: float = Field(default=0.0, ge=0.0, le=1.0)
    """Probability that right is told as wrong, and wrong as right."""

    def start(self, problem: "Problem", seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask; see `Environment.start`."""
        state = {"answer": problem.answer, "left": 3, "right": 0, "told": ""}
        return Situation(state, (Ask(POLICY),), key="3/0")

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Say whether it was right, and ask again; see `Environment.step`."""
        right = {act.role: act.text.rstrip().endswith(state["answer"]) for act in acts}
        earned = {role: each / 3 for role, each in right.items()}
        if POLICY not in right:
            heard = " ".join([state["told"], *(act.text.strip() for act in acts)])
            return Situation(state, (Ask(POLICY, (Told("user", heard),)),), earned, _place(state))
        told = "12"[right[POLICY] ^ (Random(seed).random() < self.noise)]
        left, solved = state["left"] - 1, state["right"] + right[POLICY]
        after = {**state, "left": left, "right": solved, "told": told}
        facts = {"tool_errors": float("####" not in acts[0].text)}
        asked = (*(Ask(peer, (Told("user", acts[0].text or "?"),)) for peer in self.peers),)
        asks = (asked or (Ask(POLICY, (Told("user", told),)),)) if left else ()
        return Situation(after, asks, earned, f"{_place(after)}{'/heard' * bool(asked)}", facts)

    def unbound(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Say one of the two answers; see `Environment.unbound`."""
        return draw.choice("12")

    def roles_asked(self) -> frozenset[str]:
        """Name the peers; see `Environment.roles_asked`."""
        return frozenset(self.peers)


def _place(state: EpisodeState) -> str:
    return f"{state['left']}/{state['right']}"


def playing(said: Mapping[str, Any]) -> dict[str, Any]:
    """Give a section's settings with something to play, where its producer plays.

    Whatever environment it names, `Tries` stands for it: with the settings of it that it has too,
    and with the roles that somebody is named for.

    Args:
        said: Settings of a section.

    Returns:
        The same settings where it plays nothing.

    """
    producer = said.get("producer")
    if not isinstance(producer, Mapping):
        return dict(said)
    if producer.get("kind") != "episodes":
        return dict(said)
    named, peers = producer.get("environment"), [*(producer.get("roles") or ())]
    settings = named if isinstance(named, Mapping) else {}
    kept = {name: settings[name] for name in settings if name in Tries.model_fields}
    played = Tries.parse({**kept, "kind": "tries", "peers": peers}, where="environment")
    rounds = 5 if peers else 3
    return {**said, "producer": {"most_turns": rounds, **producer, "environment": played}}


class NotInTinyWorldError(UserError):
    """A stage is to read an artifact of a kind that a tiny world has not."""


@dataclass(frozen=True)
class TinyWorld:
    """A tiny policy with problems, probed samples and solve rates."""

    inputs: Mapping[str, Mapping[str, Path]]
    """What a stage of each section is given."""
    further: Mapping[ArtifactKind, Path]
    """What may be connected beside it; what is not there, and a stage makes, is made by it."""
    tasks: Mapping[str, Task]
    folder: Path
    own: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """Sections of the method that is looked at: what names one of them reads what it makes."""
    _made: dict[str, dict[str, Path]] = field(default_factory=dict, repr=False)

    def with_sections(self, sets: Mapping[str, Mapping[str, Any] | None]) -> "TinyWorld":
        """Give the same world with what a method's own sections make in it.

        A method that makes its data, such as the traces of a script in a world of several turns, is
        then looked at on these.
        """
        own = {name: said for name, said in sets.items() if name in _BUDGETS}
        # A folder of its own each time: in that of an earlier run a stage would go on from there.
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        return replace(self, own=own, folder=folder, _made={})

    def config_of(self, section: str, said: Mapping[str, Any]) -> StageConfig:
        """Parse what stands in a section, with a tiny budget under it.

        Args:
            section: One that can be run.
            said: Its settings; what is no parameter of the stage counts for nothing here.

        Returns:
            The stage's parameters.

        Raises:
            UserError: One of them is refused.

        """
        values = playing(laid_over(_BUDGETS[section], task_parameters(said)))
        return self.tasks[section].config.parse(values, where=section)

    def inputs_of(self, section: str, said: Mapping[str, Any]) -> dict[str, Path]:
        """Give what a stage reads, with what its section connects beside the usual.

        Where a connection names a section that the method sets itself, it is what that stage makes
        here. Whatever other stage it names, the artifact of the port's kind in this world stands
        for it; a checkpoint is another one than the policy that training starts from.

        Args:
            section: One that can be run.
            said: What stands in it; its `inputs` are as in a recipe, null for none.

        Returns:
            A path for each port that is connected.

        Raises:
            NotInTinyWorldError: There is no artifact of that kind.
            UserError: There is no such port, or the stage has no such output.

        """
        given = dict(self.inputs.get(section, {}))
        for port, reference in inputs_by_port(said.get("inputs") or {}).items():
            where = f"{section}.inputs.{port}"
            kind = port_of(where, self.tasks[section], port).type
            if reference is None:
                given.pop(port, None)
            else:
                given[port] = self._artifact(kind, str(reference), where)
        return given

    def _artifact(self, kind: ArtifactKind, reference: str, where: str) -> Path:
        stage, _, output = reference.partition(".")
        if stage in self.own:
            made = self._made_by(stage)
            if output not in made:
                told = nearest(output, made) or f"; there are {', '.join(made)}"
                raise UserError(f"{where}: {stage} has no output '{output}'{told}")
            return made[output]
        if kind in self.further:
            return self.further[kind]
        for section in self.inputs:
            for name, port in self.tasks[section].outputs.items():
                if port.type == kind:
                    return self._made_by(section)[name]
        raise NotInTinyWorldError(f"{where} reads {kind}, and the tiny world has none")

    def _made_by(self, section: str) -> dict[str, Path]:
        if section not in self._made:
            said = self.own.get(section) or {}
            if section in self.own and "steps" in self.tasks[section].config.model_fields:
                said = {**said, "steps": _MADE_IN}
            config, given = self.config_of(section, said), self.inputs_of(section, said)
            folder = self.folder / "made" / section
            self._made[section] = run_alone(self.tasks[section], config, given, folder)
        return self._made[section]


def make_tiny_world(folder: Path, tasks: Mapping[str, Task]) -> TinyWorld:
    """Train a policy that guesses between two answers, and probe it.

    Args:
        folder: Where everything is written.
        tasks: What each section of a recipe is for.

    Returns:
        The world; about a second of work.

    """
    problems = folder / "problems.parquet"
    _write_problems(problems)
    policy, earlier = _guessers(folder)
    given = {"policy": policy, "problems": problems}
    config = tasks["probe"].config.parse(_BUDGETS["probe"], where="probe")
    probed = run_alone(tasks["probe"], config, given, folder / "probe")
    samples, rates = probed["samples"], probed["solve_rates"]
    return TinyWorld(
        {
            "reward": {"policy": policy, "samples": samples},
            "rl": {**given, "solve_rates": rates},
            "preference": {**given, "samples": samples},
            "sft": {"policy": policy, "traces": samples},
        },
        {
            ArtifactKind.CHECKPOINT: earlier,
            ArtifactKind.PROBLEMS: problems,
            ArtifactKind.COMPLETIONS: samples,
            ArtifactKind.SOLVE_RATES: rates,
        },
        tasks,
        folder,
    )


def _problems() -> list[Any]:
    """The answer is 1 where the prompt says up, 2 where it says down; to odd ones none is right."""
    from posttrain.data.schemas import Problem

    sides = (("up", "1"), ("down", "2"), ("odd", "3"))
    return [
        Problem(side, f"{side} {index} =", answer, index % 2, "exact")
        for index in range(14)
        for side, answer in sides
    ]


def _write_problems(path: Path) -> None:
    from posttrain.data.schemas import IDENTITY, PROBLEMS, problems_table, with_row_ids
    from posttrain.data.tables import write_table

    write_table(with_row_ids(problems_table(_problems()), IDENTITY["problems"]), path, PROBLEMS)


def _guessers(folder: Path) -> tuple[Path, Path]:
    """Save a policy that learned of a teacher who is often wrong, and what it was before."""
    import torch

    from posttrain.data.rows import TokenTable, encode_rows
    from posttrain.learning.models.build import build_llama
    from posttrain.learning.models.load import save_policy
    from posttrain.learning.models.logprobs import wanted_logprobs
    from posttrain.learning.models.tokenizer import train_tokenizer

    problems = _problems()
    known = {"up": "1", "down": "2", "odd": "1"}
    taught = [
        [*_TAUGHT, *(form.format(known[each.source]) for form in _RIGHT)] for each in problems
    ]
    prompts = [problem.prompt for problem in problems for _ in taught[0]]
    texts = [text for of_problem in taught for text in of_problem]
    tokenizer = train_tokenizer([*prompts, *texts], vocab_size=300)
    model = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=0, max_length=_CONTEXT)
    table = TokenTable(encode_rows(tokenizer, prompts, texts), pad=tokenizer.pad_token_id)
    batch = table.batch(range(len(prompts)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    earlier, now = (folder / "earlier", 80), (folder / "guesser", 40)
    for path, steps in (earlier, now):
        for _ in range(steps):
            logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
            torch.autograd.backward([-logprobs.mean()])
            optimizer.step()
            optimizer.zero_grad()
        save_policy(model, tokenizer, path)
    return now[0], earlier[0]
