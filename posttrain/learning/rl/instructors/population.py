"""A population of instructions: drawn by what they earn, thinned out, and written anew."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.players.base import PORT, Player
from posttrain.learning.episodes.players.policy import PolicyPlayer
from posttrain.learning.episodes.players.registry import PLAYERS
from posttrain.learning.rl.instructors.authored import WANTS_WHOLE_POLICY, InstructionWriter
from posttrain.learning.rl.instructors.base import (
    InstructedAttempts,
    InstructionStream,
    Instructor,
    InstructorBench,
)
from posttrain.learning.rl.instructors.members import (
    InstructionMember,
    best_and_rest,
    draw_shares,
    ranked,
    weights_of,
)
from posttrain.learning.rl.instructors.reflection import AUTHOR
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

    def beyond_processes(self, processes: int) -> str | None:
        """Say that it asks the whole policy; see `StageConfig.beyond_processes`."""
        return WANTS_WHOLE_POLICY if processes > 1 else None

    def start(self, bench: InstructorBench) -> "InstructionPopulation":
        """Begin with its texts, of which nothing is known; see `Instructor.start`.

        Args:
            bench: Who writes and who tries what is written.

        Returns:
            What chooses, with its state.

        """
        from posttrain.learning.rollouts.engines.base import SamplingParams

        writer = InstructionWriter(
            bench,
            self.author.sit(bench.table),
            SamplingParams(self.max_tokens, temperature=self.author_temperature),
            candidates=self.candidates,
            tries_of_each=self.tries,
            replay=self.replay,
            shown=self.shown,
        )
        return InstructionPopulation(self, writer, [InstructionMember(each) for each in self.texts])


@dataclass
class InstructionPopulation(InstructionStream):
    """The members, and who writes new ones."""

    config: PopulationInstructor
    writer: InstructionWriter
    members: list[InstructionMember]

    def shares(self) -> list[float]:
        """The probability of each member; see `draw_shares`."""
        return draw_shares(self.members, self.config.temperature)

    def choose(self, problems: Sequence[str], *, step: int) -> Sequence[str]:
        """Draw by `shares`; see `InstructionStream.choose`."""
        texts, shares = [each.text for each in self.members], self.shares()
        seeds = [purpose_seed(self.writer.bench.seed, "instruction", step, p) for p in problems]
        return [Random(each).choices(texts, shares)[0] for each in seeds]

    def observe(self, attempts: Sequence[InstructedAttempts]) -> None:
        """Credit each instruction with what was earned behind it; see the base."""
        earned: dict[str, list[float]] = {}
        for each in attempts:
            earned.setdefault(each.instruction, []).extend(r for r in each.rewards if r is not None)
        self.writer.remember(attempts)
        rate = self.config.rate
        self.members = [each.credited(earned.get(each.text, []), rate) for each in self.members]

    def renew(self, *, step: int) -> None:
        """Let members go and come, where it is time; see `InstructionStream.renew`."""
        self.writer.author.begin(step)
        if not self.config.every or not step or step % self.config.every:
            return
        staying, going = best_and_rest(self.members, self.config.keep)
        known, places = {each.text for each in self.members}, self.config.size - len(staying)
        coming = self.writer.newcomers(staying, known, places, step=step)
        # Who goes makes room: where fewer come in, the best of those who would go stay.
        self.members = [*staying, *going[: max(0, len(going) - len(coming))], *coming]

    def best(self) -> str:
        """The member of the highest w; see `InstructionStream.best`."""
        return ranked(self.members)[0].text

    def told(self) -> list[dict[str, Any]]:
        """All members, the best first; see `InstructionStream.told`."""
        return [asdict(each) for each in ranked(self.members)]

    def state_dict(self) -> dict[str, Any]:
        """The members, and what the writer keeps."""
        return {"members": [asdict(each) for each in self.members], **self.writer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.members = [InstructionMember(**each) for each in state["members"]]
        self.writer.load_state_dict(state)

    def metrics(self) -> dict[str, float]:
        """By the names of `PopulationInstructor.METRICS`."""
        return {
            "members": float(len(self.members)),
            "best": max(weights_of(self.members)),
            "best_share": max(self.shares()),
            "written": float(self.writer.written),
            "tries": float(self.writer.tries),
        }
