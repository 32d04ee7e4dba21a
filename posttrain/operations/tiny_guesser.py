"""A policy that guesses between two answers, its problems, and a game of three questions."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
from posttrain.stage.schedule import Schedulable

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

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

    JUDGES: ClassVar[bool] = True

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

    def plan(self, problem: "Problem", draw: Random, *, moves: int) -> str:  # noqa: ARG002
        """Tell the answer; see `Environment.plan`."""
        return f"plan: {problem.answer}"

    def roles_asked(self) -> frozenset[str]:
        """Name the peers; see `Environment.roles_asked`."""
        return frozenset(self.peers)


def _place(state: EpisodeState) -> str:
    return f"{state['left']}/{state['right']}"


def tiny_problems() -> list[Any]:
    """The answer is 1 where the prompt says up, 2 where it says down; to odd ones none is right.

    Whoever asks believes in 1 and 2 by turns.
    """
    from posttrain.data.schemas import Problem
    from posttrain.data.sources.opinions import VIEW

    sides = (("up", "1"), ("down", "2"), ("odd", "3"))
    return [
        Problem(side, f"{side} {index} =", answer, index % 2, "exact", json.dumps({VIEW: believed}))
        for index, believed in enumerate("12" * 7)
        for side, answer in sides
    ]


def write_problems(path: Path) -> None:
    """Write the problems.

    Args:
        path: Of the table.

    """
    from posttrain.data.schemas import IDENTITY, PROBLEMS, problems_table, with_row_ids
    from posttrain.data.tables import write_table

    write_table(with_row_ids(problems_table(tiny_problems()), IDENTITY["problems"]), path, PROBLEMS)


def save_guessers(folder: Path) -> tuple[Path, Path]:
    """Save a policy that learned of a teacher who is often wrong, and what it was before.

    Args:
        folder: Where to.

    Returns:
        Checkpoints of both.

    """
    import torch

    from posttrain.data.rows import TokenTable, encode_rows
    from posttrain.learning.models.build import build_llama
    from posttrain.learning.models.load import save_policy
    from posttrain.learning.models.logprobs import wanted_logprobs
    from posttrain.learning.models.tokenizer import train_tokenizer

    problems = tiny_problems()
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
