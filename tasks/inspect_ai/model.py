"""A policy as Inspect asks one: in this process, one request after the other."""

from collections import Counter
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)

from posttrain.data.conversations import prompt_of_conversation
from posttrain.data.templates import encode_prompts
from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    RolloutEngine,
    SamplingParams,
)
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of

_ENDS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "max_tokens"}
_NOT_DONE = (
    "best_of", "frequency_penalty", "logit_bias", "logprobs", "presence_penalty", "prompt_logprobs",
    "response_schema", "top_logprobs",
)  # fmt: skip


class PolicyAPI(ModelAPI):  # type: ignore[misc]
    """Answers by one of our engines; what is drawn depends on seed, messages and how often asked.

    Messages are written by the policy's chat template, as every stage writes them.
    """

    def __init__(self, policy: Policy, engine: RolloutEngine, defaults: SamplingParams) -> None:
        super().__init__("policy", config=GenerateConfig())
        self.policy, self.engine, self.defaults = policy, engine, defaults
        self._asked: Counter[str] = Counter()

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect's own name
        tools: list[Any],
        tool_choice: Any,  # noqa: ARG002 - as above
        config: GenerateConfig,
    ) -> ModelOutput:
        """Answer a conversation; tools, and settings that no engine here has, are refused."""
        if tools:
            raise UserError(
                "inspect_ai: the task gives the policy tools, which are not called here; serve it"
                " by vLLM with a parser of calls, and ask with Inspect itself"
            )
        odd = next((name for name in _NOT_DONE if getattr(config, name, None)), None)
        if odd is not None:
            raise UserError(f"inspect_ai: the task sets {odd}, which no engine here has")
        asked = prompt_of_conversation([(each.role, each.text) for each in input])
        (ids,) = encode_prompts(self.policy.tokenizer, [asked])
        name = sha256_of(",".join(map(str, ids)))
        self._asked[name] += 1
        prompt = Prompt(f"{name}/{self._asked[name]}", tuple(ids))
        samples = self.engine.sample([prompt], self._params(config))
        drawn = sum(len(each.token_ids) for each in samples)
        return ModelOutput(
            model=self.model_name,
            choices=[
                ChatCompletionChoice(
                    message=ChatMessageAssistant(content=each.text, model=self.model_name),
                    stop_reason=_ENDS.get(each.finish_reason, "unknown"),
                )
                for each in samples
            ],
            usage=ModelUsage(
                input_tokens=len(ids), output_tokens=drawn, total_tokens=len(ids) + drawn
            ),
        )

    def _params(self, config: GenerateConfig) -> SamplingParams:
        known = self.defaults
        heat = known.temperature if config.temperature is None else config.temperature
        return SamplingParams(
            max_tokens=config.max_tokens or known.max_tokens,
            temperature=heat,
            top_p=config.top_p or 1.0,
            top_k=config.top_k or 0,
            num_samples=config.num_choices or 1,
            seed=known.seed if config.seed is None else config.seed,
            stop=tuple(config.stop_seqs or ()),
        )

    async def count_tokens(self, input: Any, *_more: Any, **_options: Any) -> int:  # noqa: A002
        """Count by the policy's own tokenizer; Inspect's own way fetches one."""
        texts = [input] if isinstance(input, str) else [each.text for each in input]
        return sum(len(self.policy.tokenizer(text)["input_ids"]) for text in texts)


def open_model(policy: Policy, engine: RolloutEngine, defaults: SamplingParams) -> Model:
    """Return a policy as a model of Inspect, whose log calls it `posttrain/policy`.

    Args:
        policy: With its tokenizer.
        engine: What draws from it.
        defaults: How, where a task does not say.

    """

    # Inspect makes its providers itself, by their names, and logs what they are given.
    class OpenedPolicy(PolicyAPI):
        def __init__(self, *_named: Any, **_given: Any) -> None:
            super().__init__(policy, engine, defaults)

    modelapi("posttrain")(OpenedPolicy)
    return get_model("posttrain/policy", memoize=False)
