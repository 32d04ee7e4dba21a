"""Reinforcement learning from verifiable rewards, flat: everything that a step does, in order.

This is what `tasks/rl` does with its defaults, without what makes a run of it dependable: no
recipe, no checkpoints, no metrics, no stored rollouts. One seed gives the same weights, to the bit,
here and there (tests/tasks/test_rl_example.py). It stands on
`posttrain.learning` and the rooms below that one, and on no other:

    python examples/rl_loop.py

A tiny model has learned from a teacher who is wrong one time in three; RL makes it right.

Letters in names: `_P` problems of a step, `_G` rollouts of one problem, `_B` rollouts of a step,
`_T` tokens, right-padded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from posttrain.data.batching import length_buckets
from posttrain.data.rows import TokenTable, encode_rows
from posttrain.data.schemas import Problem
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.objective import denominator, policy_objective
from posttrain.learning.curriculum.uniform import UniformStream
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.load import Policy, weights_digest
from posttrain.learning.models.logprobs import token_logprobs, wanted_logprobs
from posttrain.learning.models.optimization import OptimizationConfig, learning_rate_factor
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.verify import verify_all
from posttrain.learning.rl.batch import TrainSample, collate
from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.learning.training.generators import seed_torch
from posttrain.learning.training.prepare import without_dropout
from posttrain.stage.seeds import purpose_seed


@dataclass(frozen=True)
class Settings:
    """What the loop is given; the names are those of a recipe's `rl` section."""

    steps: int = 12
    problems_per_step: int = 8
    group_size: int = 6
    """Rollouts of each problem: their rewards are compared with each other."""
    max_tokens: int = 8
    temperature: float = 1.0
    """Of the engine, and of the log-probabilities that are learned with."""
    learning_rate: float = 5e-3
    warmup_steps: int = 5
    max_grad_norm: float = 1.0
    micro_batch_tokens: int = 4096
    """Padded tokens of one forward pass."""
    seed: int = 0


def train(policy: Policy, problems: Sequence[Problem], settings: Settings) -> list[float]:
    """Improve a policy in place, by the problems' own verifiers.

    Args:
        policy: What is sampled from and learns.
        problems: What it is asked.
        settings: Sizes, rates and the seed.

    Returns:
        Mean reward of every step's rollouts, before the step was learned from.

    """
    model, algorithm, seed = policy.model, Algorithm(), settings.seed
    prompts = make_prompts(policy.tokenizer, problems)
    stream = UniformStream([problem.id for problem in problems])
    # Dropout would make the log-probabilities of the trainer differ from the engine's.
    without_dropout(model)
    model.eval()
    optimizer = build_optimizer(model, OptimizationConfig.model_validate({"optimizer": "muon"}))
    engine = TorchRolloutEngine(model, policy.tokenizer)
    history: list[float] = []

    for step in range(settings.steps):
        # Everything random follows from the seed and the step, so a step can be run again.
        seed_torch(purpose_seed(seed, "rl", step))

        # 1. Choose different problems.
        chosen = stream.draw(settings.problems_per_step, seed=seed, step=step)

        # 2. Sample a group of answers to each, with the weights as they are now.
        engine.update(step)
        samples_B = engine.sample(
            [prompts[index] for index in chosen],
            SamplingParams(
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                num_samples=settings.group_size,
                seed=purpose_seed(seed, "rollouts", step),
            ),
        )

        # 3. Reward: 1 where the verifier calls the answer right, else 0.
        owners_B = [index for index in chosen for _ in range(settings.group_size)]
        scores_B = verify_all(
            [
                (sample.text, problems[index])
                for sample, index in zip(samples_B, owners_B, strict=True)
            ]
        )
        rewards_B = torch.tensor([float(bool(each.correct)) for each in scores_B]).double()
        rewards_PG = rewards_B.view(len(chosen), settings.group_size)
        history.append(float(rewards_B.mean()))

        # 4. Advantage: better or worse than the other answers to the same problem. A group of
        #    equal rewards has none; its tokens count in the denominator all the same.
        advantages_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
        train_samples = [
            train_sample(prompts[owners_B[place]], sample, advantage, version=step)
            for place, (sample, advantage) in enumerate(
                zip(samples_B, advantages_PG.flatten().tolist(), strict=True)
            )
        ]

        # 5. Cut the update into forward passes of similar lengths. The loss is divided by the
        #    tokens of the whole update, so the cut changes no gradient.
        lengths = [sample.num_tokens for sample in train_samples]
        buckets = length_buckets(range(len(lengths)), lengths, settings.micro_batch_tokens)
        parts = [
            collate(
                [train_samples[place] for place in bucket],
                pad=int(policy.tokenizer.pad_token_id),
                device="cpu",
            )
            for bucket in buckets
        ]
        whole = sum(
            denominator(algorithm, part.mask_BT, max_tokens=settings.max_tokens) for part in parts
        )

        # 6. Add up the gradient: the clipped ratio of the policy to what sampled, times advantage.
        for part in parts:
            logprobs_BT = token_logprobs(
                model,
                part.input_ids_BT,
                wanted_BT=part.mask_BT,
                temperature=settings.temperature,
            ).logprobs_BT
            known = replace(part, old_logprobs_BT=logprobs_BT.detach())
            loss, _ = policy_objective(algorithm, logprobs_BT, batch=known, denominator=whole)
            loss.backward()

        # 7. One optimizer step.
        factor = learning_rate_factor(
            step,
            num_steps=settings.steps,
            lr_schedule="linear",
            warmup_steps=settings.warmup_steps,
        )
        optimizer.step(
            learning_rate=factor * settings.learning_rate, max_grad_norm=settings.max_grad_norm
        )
    return history


def train_sample(prompt: Prompt, sample: Sample, advantage: float, *, version: int) -> TrainSample:
    """Put a prompt and its answer end to end, and mark the tokens that bear loss.

    Args:
        prompt: What was read; it bears no loss.
        sample: What was drawn, token by token, never encoded anew from its text.
        advantage: Shared by all drawn tokens.
        version: Step whose policy drew it.

    """
    drawn = (False,) * len(prompt.token_ids) + (True,) * len(sample.token_ids)
    return TrainSample(
        token_ids=prompt.token_ids + sample.token_ids,
        drawn=drawn,
        logprobs=sample.logprobs,
        policy_version=version,
        advantages=(advantage,),
    )


def make_problems() -> list[Problem]:
    """Make forty problems: the answer is 1 where the prompt says up, and 2 where it says down."""
    return [
        Problem(side, f"{side} {index} =", answer, difficulty=0, verifier="exact")
        for index in range(20)
        for side, answer in (("up", "1"), ("down", "2"))
    ]


def make_policy(problems: Sequence[Problem]) -> Policy:
    """Teach a tiny model the format, by a teacher who gives a wrong answer one time in three."""
    prompts = [problem.prompt for problem in problems]
    tokenizer = train_tokenizer([*prompts, "#### 1", "#### 2"], vocab_size=280)
    model = build_llama(tokenizer, hidden=32, layers=1, heads=2, seed=0, max_length=64)
    taught = [f"#### {answer}" for p in problems for answer in ("1", "2", p.answer)]
    asked = [prompt for prompt in prompts for _ in range(3)]
    rows = encode_rows(tokenizer, asked, taught)
    batch = TokenTable(rows, pad=tokenizer.pad_token_id).batch(range(len(rows)))
    optimizer = build_optimizer(model)
    for _ in range(120):
        logprobs_N, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        (-logprobs_N.mean()).backward()
        optimizer.step(learning_rate=1e-2, max_grad_norm=10.0)
    return Policy(model, tokenizer)


def main() -> None:
    """Train, and print the mean reward of every step."""
    problems = make_problems()
    policy = make_policy(problems)
    for step, reward in enumerate(train(policy, problems, Settings()), start=1):
        print(f"step {step:2d}  reward {reward:.2f}")
    print(f"weights {weights_digest(policy.model)[:12]}")


if __name__ == "__main__":
    main()
