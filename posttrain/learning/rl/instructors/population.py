"""A population of instructions: drawn by what they earn, thinned out, and written anew."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.players.base import PORT, Player, Seat
from posttrain.learning.episodes.players.policy import PolicyPlayer
from posttrain.learning.episodes.players.registry import PLAYERS
from posttrain.learning.rl.instructors.base import (
    InstructedAttempts,
    InstructionStream,
    Instructor,
    InstructorBench,
)
from posttrain.learning.rl.instructors.reflection import (
    AUTHOR,
    InstructionFailure,
    Occasion,
    written_by,
)
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from posttrain.stage.slots import InSlot


class PopulationInstructor(Instructor):
    """Draw instructions by what they earn, and replace those that earn little by new ones.

    An instruction is drawn with softmax(w / temperature), w a moving average of what the rollouts
    behind it earned. Every so many steps those with the least w go, an author is asked for new ones
    about failures of those that stay, and the ones that the present policy earns most with come in.
    """

    SOURCE = "INSPO: Zhou et al. 2025, arXiv 2512.01945"
    METRICS: ClassVar[Mapping[str, str]] = {
        "members": "instructions that there are to choose from",
        "best": "what the best of them is said to earn",
        "best_share": "probability with which it is drawn",
        "written": "instructions that came in since the run began",
        "tries": "rollouts with which new ones were tried since then; nobody learns from them",
    }

    kind: Literal["population"] = "population"
    texts: tuple[str, ...] = Field(min_length=1)
    """The instructions that it begins with."""
    size: int = Field(default=4, ge=1)
    """Members once new ones come in."""
    temperature: float = Field(default=0.1, gt=0.0)
    """Of the draw, in units of the reward: low ones draw the best alone."""
    rate: float = Field(default=0.2, gt=0.0, le=1.0)
    """How far w moves, in a step, to the mean reward of that step's rollouts behind it."""
    every: int = Field(default=20, ge=0)
    """Steps after which members go and come; 0 for never."""
    keep: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Share of the members, rounded up, that stays then."""
    author: Annotated[Player, InSlot(PLAYERS)] = PolicyPlayer()
    """Who writes new ones: the policy as it is then, a checkpoint, an endpoint; `script` joins two
    members, and looks at no failure."""
    candidates: int = Field(default=4, ge=1)
    """New ones that are written each time; the best fill the places that are free."""
    tries: int = Field(default=8, ge=0)
    """Problems that each of them is tried on, one attempt each; 0 takes them as they come."""
    replay: int = Field(default=64, ge=1)
    """Failures that are kept: of each group that was not solved throughout, the worst attempt."""
    shown: int = Field(default=3, ge=1)
    """Of these, the most that an author is shown: its parent's own first, the latest first."""
    max_tokens: int = Field(default=128, ge=1)
    """Most tokens that an author draws."""
    author_temperature: float = Field(default=1.0, ge=0.0)
    """Of an author that draws tokens here; endpoints have their own."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(not text.strip() for text in self.texts) or len(set(self.texts)) < len(self.texts):
            raise ValueError("texts has an instruction that is empty or there twice; leave it out")
        if self.every and len(self.texts) > self.size:
            raise ValueError(
                f"texts has {len(self.texts)} instructions and size is {self.size}; raise size, or"
                " set every to 0"
            )
        return self

    @property
    def players_asked(self) -> Mapping[str, str]:
        """What the author asks; see `Instructor.players_asked`."""
        return {f"{PORT}.{port}": AUTHOR for port in self.author.ports()}

    def begins_with(self) -> tuple[str, ...]:
        """Its texts; see `Instructor.begins_with`."""
        return self.texts

    def start(self, bench: InstructorBench) -> "InstructionPopulation":
        """Begin with its texts, of which nothing is known.

        Args:
            bench: With what the author sits down.

        Returns:
            The population.

        Raises:
            UserError: The policy is shared out over several processes.

        """
        if bench.table.policy is None:
            raise UserError(
                "rl.draw.instructions: a population has its new members written and tried by the"
                " whole policy, and several processes share it out; set resources.processes to 1,"
                " or leave instructions out"
            )
        members = [InstructionMember(text) for text in self.texts]
        return InstructionPopulation(self, bench, self.author.sit(bench.table), members)


@dataclass(frozen=True)
class InstructionMember:
    """An instruction, and what is known of it."""

    text: str
    weight: float | None = None
    """w; None while nothing was earned behind it."""
    born: int = 0
    """Step that it was written before."""
    parent: str = ""
    """Of which it was written."""
    drawn: int = 0
    """Rollouts behind it, that could be judged."""

    def credited(self, rewards: Sequence[float], rate: float) -> "InstructionMember":
        """Move w to what was earned behind it in a step.

        Args:
            rewards: Of the rollouts that could be judged; none leaves it as it is.
            rate: How far w moves; the first time it is their mean.

        Returns:
            The member with the new w.

        """
        if not rewards:
            return self
        mean = math.fsum(rewards) / len(rewards)
        moved = mean if self.weight is None else self.weight + rate * (mean - self.weight)
        return replace(self, weight=moved, drawn=self.drawn + len(rewards))


@dataclass
class InstructionPopulation(InstructionStream):
    """The members, and failures to write new ones from."""

    config: PopulationInstructor
    bench: InstructorBench
    author: Seat
    members: list[InstructionMember]
    failures: list[InstructionFailure] = field(default_factory=list)
    written: int = 0
    tries: int = 0

    def weights(self) -> list[float]:
        """Return w of each member; where nothing is known of one, the mean of the others'."""
        known = [each.weight for each in self.members if each.weight is not None]
        usual = math.fsum(known) / len(known) if known else 0.0
        return [usual if each.weight is None else each.weight for each in self.members]

    def shares(self) -> list[float]:
        """softmax(w / temperature): the probability of each member."""
        weights = self.weights()
        most = max(weights)
        powers = [math.exp((each - most) / self.config.temperature) for each in weights]
        return [each / math.fsum(powers) for each in powers]

    def choose(self, problems: Sequence[str], *, step: int) -> Sequence[str]:
        """Draw by `shares`; see `InstructionStream.choose`."""
        texts, shares = [each.text for each in self.members], self.shares()
        seeds = [purpose_seed(self.bench.seed, "instruction", step, each) for each in problems]
        return [Random(each).choices(texts, shares)[0] for each in seeds]

    def observe(self, attempts: Sequence[InstructedAttempts]) -> None:
        """Credit each instruction with what was earned behind it; see the base."""
        earned: dict[str, list[float]] = {}
        for each in attempts:
            judged = [reward for reward in each.rewards if reward is not None]
            earned.setdefault(each.instruction, []).extend(judged)
            self.failures += _worst(each)
        del self.failures[: -self.config.replay]
        rate = self.config.rate
        self.members = [each.credited(earned.get(each.text, []), rate) for each in self.members]

    def renew(self, *, step: int) -> None:
        """Let members go and come, where it is time; see `InstructionStream.renew`."""
        self.author.begin(step)
        if not self.config.every or not step or step % self.config.every:
            return
        ranked = self._ranked()
        staying = ranked[: math.ceil(self.config.keep * len(ranked))]
        texts = {each.text for each in ranked}
        found: list[InstructionMember] = []
        for text, parent in self._proposed(staying, step=step):
            if not text or text in texts:
                continue
            texts.add(text)
            member = self._tried(InstructionMember(text, born=step, parent=parent), step=step)
            found += [] if member is None else [member]
        # Of equal ones who was written first.
        found.sort(key=lambda each: -(each.weight or 0.0))
        coming = found[: self.config.size - len(staying)]
        self.written += len(coming)
        # Who goes makes room: where fewer come in, the best of those who would go stay.
        spared = len(ranked) - len(staying) - len(coming)
        self.members = [*staying, *ranked[len(staying) :][: max(0, spared)], *coming]

    def best(self) -> str:
        """The member of the highest w; see `InstructionStream.best`."""
        return self._ranked()[0].text

    def told(self) -> list[dict[str, Any]]:
        """All members, the best first; see `InstructionStream.told`."""
        return [asdict(each) for each in self._ranked()]

    def state_dict(self) -> dict[str, Any]:
        """Members, failures and counts, and what the author keeps."""
        return {
            "members": [asdict(each) for each in self.members],
            "failures": [asdict(each) for each in self.failures],
            "written": self.written,
            "tries": self.tries,
            "author": self.author.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.members = [InstructionMember(**each) for each in state["members"]]
        self.failures = [InstructionFailure(**each) for each in state["failures"]]
        self.written, self.tries = int(state["written"]), int(state["tries"])
        self.author.load_state_dict(state["author"])

    def metrics(self) -> dict[str, float]:
        """By the names of `PopulationInstructor.METRICS`."""
        return {
            "members": float(len(self.members)),
            "best": max(self.weights()),
            "best_share": max(self.shares()),
            "written": float(self.written),
            "tries": float(self.tries),
        }

    def _ranked(self) -> list[InstructionMember]:
        """The best first; of equal ones who was there first."""
        weights = dict(zip((each.text for each in self.members), self.weights(), strict=True))
        return sorted(self.members, key=lambda each: -weights[each.text])

    def _proposed(
        self, staying: Sequence[InstructionMember], *, step: int
    ) -> list[tuple[str, str]]:
        """New instructions, each with its parent: those that stay take turns, the best first."""
        from posttrain.learning.rollouts.engines.base import SamplingParams

        seed = purpose_seed(self.bench.seed, "author", step)
        parents = [staying[place % len(staying)].text for place in range(self.config.candidates)]
        occasions = [
            Occasion(parent, _mate(parent, staying, seed, place), self._failures_of(parent))
            for place, parent in enumerate(parents)
        ]
        params = SamplingParams(
            max_tokens=self.config.max_tokens,
            temperature=self.config.author_temperature,
            num_samples=1,
            seed=seed,
        )
        speaker = self.author.speaker(params)
        texts = written_by(speaker, occasions, step=step, seed=seed)
        if all(text is None for text in texts):
            raise UserError(
                "rl.draw.instructions: what the author is asked leaves it no room to answer; lower"
                f" shown ({self.config.shown} failures), or let one with a longer context write"
            )
        return [(text or "", parent) for text, parent in zip(texts, parents, strict=True)]

    def _failures_of(self, parent: str) -> Sequence[InstructionFailure]:
        latest = list(reversed(self.failures))
        own = [each for each in latest if each.instruction == parent]
        return (own + [each for each in latest if each.instruction != parent])[: self.config.shown]

    def _tried(self, member: InstructionMember, *, step: int) -> InstructionMember | None:
        """Say what the present policy earns behind it; nothing of one that cannot be judged."""
        if not self.config.tries:
            return member
        seed = purpose_seed(self.bench.seed, "tries", step)
        rewards = self.bench.try_out(member.text, count=self.config.tries, seed=seed)
        self.tries += len(rewards)
        if not rewards:
            return None
        return replace(member, weight=math.fsum(rewards) / len(rewards))


def _worst(attempts: InstructedAttempts) -> list[InstructionFailure]:
    """The attempt of a group that earned least, of those that did not solve it; none if all did."""
    each = zip(attempts.texts, attempts.rewards, attempts.solved, strict=True)
    failed = [
        InstructionFailure(attempts.instruction, attempts.problem, text, reward)
        for text, reward, solved in each
        if reward is not None and not solved
    ]
    return [min(failed, key=lambda failure: failure.reward)] if failed else []


def _mate(parent: str, staying: Sequence[InstructionMember], seed: int, place: int) -> str:
    others = [each.text for each in staying if each.text != parent] or [parent]
    return Random(purpose_seed(seed, "mate", place)).choice(others)
