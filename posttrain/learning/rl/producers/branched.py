"""Answers of the policy, and others that branch off from inside of them where it was unsure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.rl.rollout import Group, Rollout
    from posttrain.learning.rollouts.engines.base import Prompt

BRANCHED = "branched_at"
"""Fact of a branch: drawn tokens of another answer that it goes on from."""


class Branched(Producer):
    """Draw a part of each group, and let the rest go on from the beginnings of those answers.

    A beginning ends before a token, drawn uniformly from the `top` ones at which the policy's
    entropy was highest, but for an answer's first. It is read by the branch and bears no loss
    there; both together are judged as one answer. Where there is no such token, or no room behind
    it, the branch is an answer to the problem as it is.
    """

    SOURCE: ClassVar[str] = (
        "CURE, arXiv 2508.11016; bytedance/CURE at a2a0217,"
        " recipe/CURE_First_Stage/dapo_ray_trainer.py (get_critic_key_token_mask, fit)"
    )

    kind: Literal["branched"] = "branched"
    each: int = Field(default=3, ge=1)
    """Branches of an answer: of a group of G, G / (1 + `each`) begin at the problem, rounded up."""
    top: int = Field(default=20, ge=1)
    """Tokens of highest entropy from which the place is drawn; 1 takes the highest."""
    shortest: int = Field(default=2, ge=0)
    """Fewest characters, without white space around them, of a token that is branched before."""

    def played_in(self) -> "Environment":
        """Nothing answers; see `Producer.played_in`."""
        return Single()

    def beyond_processes(self, processes: int) -> str | None:
        """Say that it asks the whole policy; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        return (
            "producer branched asks the policy how unsure it is, and several processes have a part"
            " of it each; leave resources.processes out"
        )

    def start(self, bench: Workbench) -> Production:
        """Begin a run.

        Args:
            bench: What it works with, the policy itself among it.

        Returns:
            What draws answers and their branches.

        """
        return BranchedProduction(self, bench)

    def place(self, entropies: Sequence[float], words: Sequence[str], chance: Random) -> int:
        """Choose where an answer is branched from.

        Args:
            entropies: Of the policy where it drew each token, in any unit, ``[T]``.
            words: The text of each of them; empty for one that is none, as the end, ``[T]``.
            chance: Where all chance comes from.

        Returns:
            How many tokens are kept; 0 where there is no place.

        """
        able = [at for at in range(1, len(words)) if len(words[at].strip()) >= self.shortest]
        able = [at for at in able if words[at]]
        highest = sorted(able, key=lambda at: -entropies[at])[: self.top]
        return chance.choice(highest) if highest else 0


@dataclass(frozen=True)
class BranchedProduction(Production):
    """Draws twice; it has no state."""

    config: Branched
    bench: Workbench

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Draw answers, then their branches; see `Production.produce`."""
        from posttrain.learning.rl.drawn import as_groups

        size = at.params.num_samples
        begun = -(-size // (1 + self.config.each))
        params = replace(at.params, num_samples=begun)
        samples = self.bench.engine.sample(prompts, params)
        groups = as_groups(samples, problems, prompts, first=at.first_group)
        kept = self._kept(groups, problems, at)
        told = [
            [self._told(prompt, row, keep) for row, keep in zip(group, keeps, strict=True)]
            for prompt, group, keeps in zip(prompts, groups, kept, strict=True)
        ]
        # Where the rest of a group does not go evenly, the first answers have a branch more.
        least, more = divmod(size - begun, begun)
        rest: list[list[Rollout]] = [[] for _ in groups]
        for count, places in ((least + 1, slice(0, more)), (least, slice(more, begun))):
            asked = [(n, each) for n, row in enumerate(told) for each in row[places]]
            if not count or not asked:
                continue
            own = replace(
                at.params, num_samples=count, seed=purpose_seed(at.params.seed, "branches")
            )
            behind = [each for _, each in asked]
            samples = self.bench.engine.sample(behind, own)
            made = as_groups(samples, [problems[n] for n, _ in asked], behind)
            for (n, _), rows in zip(asked, made, strict=True):
                begin = len(prompts[n].token_ids)
                rest[n] += [self._branch(row, begin, at.first_group + n) for row in rows]
        return [[*group, *others] for group, others in zip(groups, rest, strict=True)]

    def _kept(
        self, groups: "Sequence[Group]", problems: Sequence["Problem"], at: SamplingRound
    ) -> list[list[int]]:
        """Return how many tokens of each answer are gone on from."""
        from posttrain.learning.episodes.forking import first_entropies

        assert self.bench.policy is not None
        tokenizer, special = self.bench.tokenizer, set(self.bench.tokenizer.all_special_ids)
        rows = [row for group in groups for row in group]
        longest = max(row.num_drawn for row in rows)
        temperature = at.params.temperature or 1.0
        found = iter(
            first_entropies(self.bench.policy.model, rows, longest, temperature=temperature)
        )
        kept: list[list[int]] = []
        for problem, group in zip(problems, groups, strict=True):
            chance = Random(purpose_seed(at.params.seed, "branch", problem.id))
            kept.append([])
            for row in group:
                ids = row.token_ids[row.spans[-1].begin :]
                words = ["" if each in special else tokenizer.decode([each]) for each in ids]
                kept[-1].append(self.config.place(next(found), words, chance))
        return kept

    def _told(self, prompt: "Prompt", row: "Rollout", keep: int) -> "Prompt":
        """Return what the branches of an answer go on from."""
        from posttrain.learning.rollouts.limits import leaves_room

        place = row.episode.rpartition("/")[2]
        ids = row.token_ids[: len(prompt.token_ids) + keep]
        told = replace(prompt, id=f"{prompt.id}/{place}", token_ids=ids)
        fits = leaves_room(told, self.bench.engine.context_length)
        return told if fits else replace(told, token_ids=prompt.token_ids)

    def _branch(self, row: "Rollout", begin: int, group: int) -> "Rollout":
        """Say of a branch where it left, and judge it with what it goes on from."""
        from posttrain.learning.rollouts.engines.beginnings import whole_text

        begun = row.spans[-1].begin - begin
        ids = row.token_ids[begin:]
        text = whole_text(self.bench.tokenizer, ids[:begun], ids[begun:], row.text)
        return row._replace(group=group, text=text, facts=((BRANCHED, float(begun)),))
