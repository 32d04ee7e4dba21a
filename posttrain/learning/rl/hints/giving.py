"""The beginning of a reference solution as tokens, where it is to stand."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from posttrain.data.contexts import PromptContext
from posttrain.data.plans import told_behind
from posttrain.data.templates import encode_completions
from posttrain.learning.rollouts.engines.beginnings import whole_text
from posttrain.learning.rollouts.limits import leaves_room
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.producers.base import Workbench
    from posttrain.learning.rollouts.engines.base import Prompt

Place = Literal["answer", "prompt"]
Cut = Literal["token", "line"]


class Hint(NamedTuple):
    """What a problem is given."""

    share: float
    """Of the solution's tokens."""
    prompt: "Prompt"
    """With the hint in it, or behind it."""
    begun: tuple[int, ...] = ()
    """Tokens that the answer begins with."""
    read: tuple[str, ...] = ()
    """Id of the solution's row; none where nothing is given."""


@dataclass(frozen=True)
class HintGiver:
    """Cuts solutions, and puts what is given behind a problem or before its answer."""

    bench: "Workbench"
    place: Place
    cut: Cut
    lead: str

    def has(self, problem: "Problem") -> bool:
        """Tell whether somebody solved a problem."""
        return problem.id in self.bench.tables.solutions()

    def give(self, problem: "Problem", prompt: "Prompt", share: float) -> Hint:
        """Give the beginning of a problem's first solution.

        Args:
            problem: The problem.
            prompt: It, as tokens.
            share: Of the solution's tokens; one is always left to draw.

        Returns:
            The hint; nothing is given of a problem without a solution.

        Raises:
            UserError: With the hint it fills the policy's context.

        """
        found = self.bench.tables.solutions().get(problem.id)
        if not found:
            return Hint(0.0, prompt)
        whole = self._encoded(found[0].text)
        ids = whole[: min(round(share * len(whole)), len(whole) - 1)]
        if self.cut == "line":
            lines = self._text(ids).count("\n")
            kept = found[0].text.splitlines(keepends=True)[:-1][:lines]
            ids = self._encoded("".join(kept))
        if not ids:
            return Hint(0.0, prompt)
        answered = self.place == "answer"
        told = replace(prompt, token_ids=prompt.token_ids + ids)
        if not answered:
            told = self._told(problem, self._text(ids))
        if not leaves_room(told, self.bench.engine.context_length):
            raise UserError(
                f"rl.producer: behind {len(ids)} tokens of its solution the problem {problem.id}"
                f" fills the {self.bench.engine.context_length} tokens of the policy's context; let"
                " the law give less, or take shorter solutions"
            )
        return Hint(len(ids) / len(whole), told, ids if answered else (), (found[0].id,))

    def whole(self, hint: Hint, drawn: "Sequence[int]", text: str) -> str:
        """Join what an answer begins with and what was drawn behind it.

        Args:
            hint: What was given.
            drawn: Tokens.
            text: The same as text, without the token that ends it.

        Returns:
            One text, with the space between the two where the tokens have one.

        """
        return whole_text(self.bench.tokenizer, hint.begun, drawn, text)

    def _encoded(self, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        *ids, _ = encode_completions(self.bench.tokenizer, [text])[0]
        return tuple(ids)

    def _text(self, ids: "Sequence[int]") -> str:
        return str(self.bench.tokenizer.decode(ids, skip_special_tokens=True))

    def _told(self, problem: "Problem", text: str) -> "Prompt":
        context = PromptContext.read(problem.context)
        after = told_behind(context.after, told_behind(self.lead, text.rstrip("\n")))
        told = context.model_copy(update={"after": after}).written()
        (made,) = make_prompts(self.bench.tokenizer, [replace(problem, context=told)])
        return replace(made, id=problem.id)
