"""An environment that waits, as one does that asks a page or a tool, and problems to play about."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.data.schemas import IDENTITY, PROBLEMS, Problem, problems_table, with_row_ids
from posttrain.data.tables import write_table
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Said,
    Situation,
    Told,
)
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer

_SIDES = ("up", "down")


class Waiting(Environment):
    """Say "again" a few times, each after a while; the episodes of a round wait side by side."""

    kind: Literal["waiting"] = "waiting"
    rounds: int = 3
    """Times that the policy is asked again."""
    seconds: float = 0.05
    """What an answer takes."""

    def start(self, problem: Problem, seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask; see `Environment.start`."""
        return Situation({"left": self.rounds}, (Ask(POLICY),))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Wait, and ask again; see `Environment.step`."""
        return self.step_all([Said(state, acts, seed)])[0]

    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Wait once for all; see `Environment.step_all`."""
        time.sleep(self.seconds)
        return [self._answered(turn.state) for turn in turns]

    def _answered(self, state: EpisodeState) -> Situation:
        left = state["left"] - 1
        told = (Ask(POLICY, (Told("user", "again"),)),) if left >= 0 else ()
        return Situation({"left": left}, told)


def write_inputs(folder: Path, *, hidden: int, layers: int) -> dict[str, Path]:
    """Write problems, held-out ones, and a policy that answers many of them wrongly.

    The answer is 1 where the prompt says up and 2 where it says down; the teacher was wrong one
    time in three.

    Args:
        folder: Where to.
        hidden: Width of the policy.
        layers: Its layers.

    Returns:
        Paths: `policy`, `problems`, `heldout`.

    """
    problems = [
        Problem(side, f"{side} {index} =", str(place + 1), 1, "exact")
        for index in range(160)
        for place, side in enumerate(_SIDES)
    ]
    train, heldout = problems[:192], problems[192:]
    texts = [problem.prompt for problem in problems] + ["#### 1", "#### 2", "again\n"]
    tokenizer = train_tokenizer(texts, vocab_size=290)
    model = build_llama(tokenizer, hidden=hidden, layers=layers, heads=4, seed=0, max_length=96)
    shown = train[:48]
    prompts = [problem.prompt for problem in shown for _ in range(3)]
    taught = [f"#### {answer}" for each in shown for answer in ("1", "2", each.answer)]
    rows = encode_rows(tokenizer, prompts, taught)
    batch = TokenTable(rows, pad=tokenizer.pad_token_id).batch(range(len(rows)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        (-logprobs.mean()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    paths = {name: folder / name for name in ("policy", "problems", "heldout")}
    save_policy(model, tokenizer, paths["policy"])
    for name, rows_of in (("problems", train), ("heldout", heldout)):
        write_table(
            with_row_ids(problems_table(rows_of), IDENTITY["problems"]), paths[name], PROBLEMS
        )
    return paths
