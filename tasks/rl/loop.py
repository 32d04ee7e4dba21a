"""The RL loop: draw problems, sample, judge, learn, remember."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from posttrain.attempts import Judge, attempt
from posttrain.models.checkpoint import Checkpointer
from posttrain.pipeline.context import StageContext
from posttrain.records import Problem
from posttrain.sampling.base import FinishReason, Prompt, Sampler, SamplingParams
from posttrain.sampling.noise import purpose_seed
from posttrain.training.curve import Curve
from tasks.rl.config import RlConfig
from tasks.rl.curriculum import Curriculum
from tasks.rl.learner import Learner
from tasks.rl.rollout import Rollout, RolloutStore, has_signal, rollouts_table, score_groups

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Practice:
    """What is practised, and everything that changes while it is: what a checkpoint holds."""

    problems: Sequence[Problem]
    prompts: Sequence[Prompt]
    curriculum: Curriculum
    learner: Learner
    curve: Curve
    store: RolloutStore

    @property
    def model(self) -> "PreTrainedModel":
        """The policy."""
        return self.learner.model

    def save(self, checkpointer: Checkpointer, step: int) -> None:
        """Write a checkpoint of the state after `step` steps."""
        self.store.flush(step)
        states = {
            "model": self.model.state_dict(),
            "optimizer": self.learner.optimizer.state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "curve": self.curve.state_dict(),
        }
        checkpointer.save(step, states)

    def restore(self, checkpointer: Checkpointer, device: str) -> int:
        """Take up the newest checkpoint, if there is one; returns the steps that are done."""
        snapshot = checkpointer.load(device=device)
        if snapshot is None:
            return 0
        self.model.load_state_dict(snapshot.states["model"])
        self.learner.optimizer.load_state_dict(snapshot.states["optimizer"])
        self.curriculum.load_state_dict(snapshot.states["curriculum"])
        self.curve.load_state_dict(snapshot.states["curve"])
        return snapshot.step


def train(
    practice: Practice,
    sampler: Sampler,
    *,
    config: RlConfig,
    context: StageContext,
    checkpointer: Checkpointer,
) -> None:
    """Train the policy in place for `config.steps` steps; goes on from a killed attempt.

    Everything random in a step follows from the seed and the step, so a step that is run again
    after a kill is the same step. Groups whose rewards are all equal are stored and counted, but
    not trained on: their gradient is 0.
    """
    judge = Judge()
    first = practice.restore(checkpointer, context.device)
    if first:
        context.note(f"resuming after step {first} of {config.steps}")
    # Dropout would make the trainer's log-probabilities differ from the sampler's.
    practice.model.eval()
    for step in range(first, config.steps):
        started = time.perf_counter()
        torch.manual_seed(purpose_seed(context.seed, "rl", step))
        chosen = practice.curriculum.draw(config.problems_per_step, seed=context.seed, step=step)
        prompts = [practice.prompts[index] for index in chosen]

        sampler.update(step)
        attempts = attempt(
            sampler,
            [practice.problems[index] for index in chosen],
            prompts,
            SamplingParams(
                max_tokens=config.max_tokens,
                temperature=config.temperature,
                num_samples=config.group_size,
                seed=purpose_seed(context.seed, "rollouts", step),
            ),
            judge=judge,
        )
        sampled = time.perf_counter()
        groups = score_groups(attempts, prompts, scale=config.advantage_scale)
        practice.curriculum.observe(
            chosen,
            solved=[sum(rollout.reward for rollout in group) for group in groups],
            attempts=[len(group) for group in groups],
        )

        metrics = describe(groups)
        trained = [group for group in groups if has_signal(group)]
        if trained:
            metrics |= practice.learner.learn(trained, step=step, seed=context.seed)
        practice.curve.log(step + 1, {f"rl/{name}": value for name, value in metrics.items()})
        everything = [rollout for group in groups for rollout in group]
        practice.store.add(rollouts_table(everything, step=step + 1))

        # Wall-clock goes to the tracker only: it must not reach an artifact.
        seconds = {"rl/seconds_sampling": sampled - started}
        context.log(step + 1, seconds | {"rl/seconds_learning": time.perf_counter() - sampled})
        context.progress(step + 1, config.steps)
        if checkpointer.due(step + 1):
            practice.save(checkpointer, step + 1)


def describe(groups: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    """What a step's rollouts are like, over all of them, trained on or not.

    `yield` is the share of rollouts in groups with signal, the only ones that teach. `entropy` is
    the mean of -log p over the drawn tokens, an unbiased estimate of the policy's.
    """
    samples = [rollout.attempt.sample for group in groups for rollout in group]
    scores = [[rollout.reward for rollout in group] for group in groups]
    num_tokens = sum(len(sample.token_ids) for sample in samples)
    cut = sum(sample.finish_reason is FinishReason.LENGTH for sample in samples)
    return {
        "reward": sum(map(sum, scores)) / len(samples),
        "length": num_tokens / len(samples),
        "truncation_rate": cut / len(samples),
        "entropy": -sum(sum(sample.logprobs) for sample in samples) / num_tokens,
        "yield": sum(map(has_signal, groups)) / len(groups),
        "all_solved": sum(min(group) >= 1 for group in scores) / len(groups),
        "none_solved": sum(max(group) <= 0 for group in scores) / len(groups),
    }
