"""How many episodes would be learned from as other tokens, were their text tokenized again.

    python -m benchmarks.sampling.drift --episodes 64 --turns 4

A small policy is taught sums, and plays episodes in which it is asked again. What it drew stays as
it was drawn; beside it the same conversation is written as text and tokenized, as is done where
only text comes back from an engine. Counted are the episodes whose token ids differ, for a policy
before and after it was taught: an untrained one draws spellings that no tokenizer gives, so that it
is an upper bound.
"""

import argparse
from collections.abc import Sequence
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.episode import Segment
from posttrain.learning.episodes.play import Role, play
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.logprobs import token_logprobs, wanted_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.rollouts.scoring import make_prompts


class Again(Environment):
    """Ask for the next sum, until the episode is cut off."""

    kind: Literal["again"] = "again"

    def start(self, problem: Problem, seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask for the first."""
        return Situation({"turn": 1}, (Ask(POLICY),))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Ask for another."""
        turn = state["turn"] + 1
        told = Told("user", f"{turn} + {turn} =")
        return Situation({"turn": turn}, (Ask(POLICY, (told,)),))


def main() -> None:
    """Teach, play, count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300, help="updates of the taught policy")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sums = [(a, b) for a in range(30) for b in range(30)]
    prompts = [f"{a} + {b} =" for a, b in sums]
    texts = [f"{a} + {b} = {a + b}\n#### {a + b}" for a, b in sums]
    tokenizer = train_tokenizer(prompts + texts, vocab_size=320)
    model = build_llama(tokenizer, hidden=64, layers=2, heads=4, seed=0, max_length=512)
    table = Table(
        "policy",
        "episodes",
        "other tokens",
        "drawn tokens",
        "gap of log-probability: mean, largest",
    )
    for name, steps in (("untrained", 0), ("taught", options.steps)):
        _teach(model, tokenizer, prompts, texts, steps=steps)
        segments = _played(model, tokenizer, prompts[: options.episodes], turns=options.turns)
        moved = sum(_written_again(tokenizer, each) != each.token_ids for each in segments)
        gaps = torch.cat([_gaps(model, each) for each in segments])
        share = f"{moved} ({moved / len(segments):.0%})"
        table.add_row(
            name, str(len(segments)), share, str(len(gaps)), f"{gaps.mean():.1e}, {gaps.max():.1e}"
        )
    Console().print(table)


def _teach(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    texts: Sequence[str],
    *,
    steps: int,
) -> None:
    rows = encode_rows(tokenizer, prompts, texts)
    table = TokenTable(rows, pad=tokenizer.pad_token_id)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        chosen = torch.randint(len(rows), (64,), generator=generator).tolist()
        batch = table.batch(chosen)
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        optimizer.zero_grad()
        (-logprobs.mean()).backward()
        optimizer.step()


def _played(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    turns: int,
) -> list[Segment]:
    problems = [Problem("sums", prompt, "0", 1, "exact") for prompt in prompts]
    params = SamplingParams(max_tokens=32, seed=1)
    role = Role(TorchRolloutEngine(model, tokenizer, batch_size=64), tokenizer, params)
    asked = make_prompts(tokenizer, problems)
    groups = play(Again(), problems, asked, {POLICY: role}, seed=1, most_turns=turns)
    return [group[0].of(POLICY)[0] for group in groups]


def _written_again(tokenizer: PreTrainedTokenizerBase, segment: Segment) -> tuple[int, ...]:
    """The tokens of a conversation that was kept as text, turn by turn."""
    ids: list[int] = []
    for span in segment.spans:
        part = list(segment.token_ids[span.begin : span.end])
        ends = part[-1:] if span.drawn and part[-1] == tokenizer.eos_token_id else []
        text = tokenizer.decode(part[: len(part) - len(ends)])
        ids += [*tokenizer.encode(text, add_special_tokens=False), *ends] if span.drawn else part
    return tuple(ids)


def _gaps(model: PreTrainedModel, segment: Segment) -> torch.Tensor:
    """Between engine and trainer at each drawn token, as it was drawn, in nats ``[N]``."""
    drawn = [span.drawn for span in segment.spans for _ in range(span.begin, span.end)]
    wanted = torch.tensor([drawn])
    with torch.no_grad():
        found = token_logprobs(model, torch.tensor([segment.token_ids]), wanted_BT=wanted)
    return (found.logprobs_BT[wanted] - torch.tensor(segment.logprobs)).abs()


if __name__ == "__main__":
    main()
