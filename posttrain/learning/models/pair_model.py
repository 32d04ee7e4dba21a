"""A preference model that reads both answers: a reward model whose prompt quotes the rival.

P(y preferred to y' | x) = σ(s(y | x, y') - s(y' | x, y)), s being what a reward model gives to an
answer behind a prompt that tells the other one. Every antisymmetric logit f(y, y') is of this form,
with s = f / 2, so that preferences may run in a circle, as general preferences do (Munos et al.,
arXiv 2312.00886, section 3, who ask one model about prompt and both answers; that both orders are
read and set against each other is a choice here, so that the two probabilities add up to 1).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

from posttrain.data.contexts import AnyPrompt
from posttrain.learning.models.load import load_tokenizer, load_weights
from posttrain.learning.models.reward_head import (
    Parameterization,
    RewardModel,
    save_reward_model,
)
from posttrain.stage.errors import UserError

TELLS = "{prompt}\n\nAnother answer:\n{rival}\n\nA better answer:"
"""How a prompt tells the other answer."""

_FILE, _KIND, _BOTH = "reward.json", "parameterisation", "both_answers"
_OF: tuple[Parameterization, ...] = ("likelihood", "head")


@dataclass(frozen=True)
class PairModel:
    """A reward model that is asked about an answer behind a prompt with its rival in it."""

    reads: RewardModel

    def logits(
        self, prompts: Sequence[AnyPrompt], firsts: Sequence[str], seconds: Sequence[str]
    ) -> list[float]:
        """Compute the log-odds that first answers are preferred to second ones.

        Args:
            prompts: What both answer, one per pair.
            firsts: An answer each.
            seconds: Another answer each.

        Returns:
            Numbers that change their sign where first and second change places; 0 for equal texts.

        """
        asked = [tells(each, rival) for each, rival in zip(prompts, seconds, strict=True)]
        asked += [tells(each, rival) for each, rival in zip(prompts, firsts, strict=True)]
        values = self.reads.score(asked, [*firsts, *seconds])
        count = len(firsts)
        return [
            0.0 if first == second else one - other
            for first, second, one, other in zip(
                firsts, seconds, values[:count], values[count:], strict=True
            )
        ]


def tells(prompt: AnyPrompt, rival: str) -> AnyPrompt:
    """Return a prompt that quotes another answer.

    Args:
        prompt: What is asked; its context stays as it is.
        rival: The other answer.

    Returns:
        What the first answer is read behind.

    """
    if isinstance(prompt, str):
        return TELLS.format(prompt=prompt, rival=rival)
    return prompt._replace(text=TELLS.format(prompt=prompt.text, rival=rival))


def facing(pairs: pl.DataFrame) -> pl.DataFrame:
    """Put both sides of pairs behind prompts that tell the other side.

    Args:
        pairs: PAIRS.

    Returns:
        The same with other prompts, and with `rejected_prompt` and `rejected_context`, what the
        rejected answer is read behind.

    """

    def told(rival: str) -> list[str]:
        rows = zip(pairs["prompt"], pairs[rival], strict=True)
        return [TELLS.format(prompt=prompt, rival=text) for prompt, text in rows]

    return pairs.with_columns(
        prompt=pl.Series(told("rejected"), dtype=pl.String),
        rejected_prompt=pl.Series(told("chosen"), dtype=pl.String),
        rejected_context=pl.col("context"),
    )


def save_pair_model(model: PairModel, path: Path) -> None:
    """Write a model that `load_pair_model` reads, and that `load_reward_model` refuses.

    Args:
        model: What to write.
        path: The folder.

    """
    save_reward_model(model.reads, path)
    described = path / _FILE
    facts = json.loads(described.read_text())
    facts |= {_KIND: _BOTH, "of": model.reads.parameterization, "tells": TELLS}
    described.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def load_pair_model(path: Path, *, device: str = "cpu") -> PairModel:
    """Load what `save_pair_model` wrote.

    Args:
        path: The folder.
        device: Where the weights go, as torch names it.

    Returns:
        The model, for asking it.

    Raises:
        UserError: It is a model that reads one answer, or was taught in other words.

    """
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    described = path / _FILE
    facts = json.loads(described.read_text()) if described.is_file() else {}
    if facts.get(_KIND) != _BOTH or facts.get("of") not in _OF:
        raise UserError(
            f"{path}: this reward model reads one answer; train one with reward.reads: both, or"
            " take the oracle `model`"
        )
    if facts.get("tells") != TELLS:
        raise UserError(f"{described}: the rival was told in other words; train the model again")
    kind = _OF[_OF.index(facts["of"])]
    auto = AutoModelForCausalLM if kind == "likelihood" else AutoModelForSequenceClassification
    weights = load_weights(auto, path, device=device, dtype=torch.float32)
    return PairModel(RewardModel(weights, load_tokenizer(path), kind, float(facts["scale"])))
