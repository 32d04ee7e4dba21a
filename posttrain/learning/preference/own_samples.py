"""What the policy answers itself to the prompts of a step's pairs, for losses that ask for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from posttrain.data.pairs import PairTable
from posttrain.data.rows import TokenRow
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.preference.objective import PreferenceBatch, reduced_logprobs
from posttrain.learning.rollouts.engines.base import Prompt, RolloutEngine
from posttrain.learning.rollouts.engines.config import open_engine
from posttrain.learning.rollouts.limits import tokens_for
from posttrain.stage.context import StageContext
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy


@dataclass(frozen=True)
class OwnSampling:
    """Completes the parts of a step by one answer of the policy, as it is then, to each prompt."""

    engine: RolloutEngine
    """Holds the policy that learns."""
    reference: FrozenPolicy
    config: PreferenceConfig
    seed: int
    """What is drawn follows from it and from the step."""
    max_tokens: int
    pad: int

    @torch.no_grad()
    def __call__(
        self, model: "PreTrainedModel", parts: list[PreferenceBatch], step: int
    ) -> list[PreferenceBatch]:
        """Draw one answer for each pair, and ask the reference for its log-probability.

        Args:
            model: The policy, of which the engine takes the present weights.
            parts: The micro-batches of the step.
            step: Counted from 0.

        Returns:
            The parts with the answers as their `extra`.

        """
        self.engine.update(step)
        sampling = self.config.sampling.model_copy(update={"num_samples": 1})
        params = sampling.params(purpose_seed(self.seed, "own", step), max_tokens=self.max_tokens)
        asked = [_prompts(part) for part in parts]
        numbered = enumerate(ids for prompts in asked for ids in prompts)
        drawn = iter(self.engine.sample([Prompt(str(n), ids) for n, ids in numbered], params))
        return [
            self._completed(
                model.device.type,
                part,
                [TokenRow((*ids, *next(drawn).token_ids), start=len(ids)) for ids in prompts],
            )
            for part, prompts in zip(parts, asked, strict=True)
        ]

    def _completed(
        self, device: str, part: PreferenceBatch, rows: list[TokenRow]
    ) -> PreferenceBatch:
        extra = PairTable(rows, pad=self.pad).batch(range(len(rows))).to(device)
        algorithm = self.config.algorithm
        with self.reference.reading() as model:
            reference_B = reduced_logprobs(algorithm, model, extra, paired=False)
        return replace(part, extra=extra, extra_reference_B=reference_B)


@contextmanager
def own_sampling(
    policy: "Policy",
    reference: FrozenPolicy,
    *,
    pad: int,
    config: PreferenceConfig,
    context: StageContext,
) -> Iterator[OwnSampling]:
    """Open an engine on the policy, which draws from it at every step.

    Args:
        policy: What learns.
        reference: A policy that stays as it is while this one learns.
        pad: Token that fills up rows.
        config: How the policy is sampled; one answer is drawn for each pair.
        context: Of the stage.

    Yields:
        What completes the parts of a step.

    """
    limit = tokens_for(config.sampling.max_tokens, policy.model, note=context.note)
    size = config.sampling.batch_size
    with open_engine(config.sampling.engine, policy, batch_size=size) as engine:
        yield OwnSampling(engine, reference, config, context.seed, limit, pad)


def _prompts(part: PreferenceBatch) -> list[tuple[int, ...]]:
    """What stands before the completion in each pair of a part."""
    tokens, wanted = part.tokens.input_ids_BT, part.tokens.wanted_BT
    rows = zip(tokens.chunk(2)[0], wanted.chunk(2)[0], strict=True)
    return [tuple(row_T[: int(mask_T.int().argmax())].tolist()) for row_T, mask_T in rows]
