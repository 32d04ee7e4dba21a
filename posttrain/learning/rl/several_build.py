"""Put several policies together: the connected ones, and copies of the first."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from posttrain.learning.curriculum.base import ProblemPool
from posttrain.learning.models.context import check_reads_alike
from posttrain.learning.models.load import Policy, weights_digest
from posttrain.learning.rl.build import build_learner
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.member import COPIED, FIRST, Member
from posttrain.learning.rl.several_config import SeveralConfig
from posttrain.learning.rl.state import start_state
from posttrain.learning.rl.tools import open_tools
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.learning.training.prepare import load_to_train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from posttrain.stage.spec import under_port

POLICIES = "policies"
"""The port that brings policies beside the first."""


@dataclass(frozen=True)
class Learning:
    """A policy with its learner, before anything is drawn."""

    name: str
    policy: Policy
    learner: PolicyLearner
    context: StageContext
    """Of the stage, with a seed and a folder of the policy's own."""
    begun: str
    """Digest of the policy as it was loaded, without adapters and before anything is held."""


def build_policies(
    first: Policy, config: SeveralConfig, inputs: Mapping[str, Path], context: StageContext
) -> list[Learning]:
    """Put the policies beside the first, and a learner around each.

    Args:
        first: The policy that the stage hands on; the others are copies, or are connected.
        config: Of the stage; its exchange says how many there are.
        inputs: Of the stage by port.
        context: Of the stage.

    Returns:
        The first policy, `policy_1`, then those that are connected in the order of their names,
        then copies of the first, `policy_2` and so on.

    Raises:
        UserError: More are connected than there are to be, or one differs in tokenizer or context.

    """
    policies = {FIRST: first}
    for name, path in sorted(under_port(POLICIES, inputs).items()):
        policies[name] = _further(name, path, first, config, context)
    count = config.exchange.policies
    if len(policies) > count:
        raise UserError(
            f"coevolve.inputs: {len(policies) - 1} policies are connected beside the first, and"
            f" exchange.policies says that there are {count} in all; raise it, or connect fewer"
        )
    for number in range(2, count + 1):
        if len(policies) < count:
            policies[f"{COPIED}_{number}"] = Policy(copy.deepcopy(first.model), first.tokenizer)
    read = {port: inputs[port] for port in ("reference",) if port in inputs}
    found = []
    for name, policy in policies.items():
        own = context_of(name, context)
        begun = weights_digest(policy.model)
        learner = build_learner(policy, config, own, inputs=read)
        found.append(Learning(name, policy, learner, own, begun))
    return found


def context_of(name: str, context: StageContext) -> StageContext:
    """Give a policy a seed and a folder of its own, and let it be heard by its notes alone.

    Args:
        name: Of the policy; the first has the stage's own seed.
        context: Of the stage.

    Returns:
        A context for what the policy is trained with.

    """
    seed = context.seed if name == FIRST else purpose_seed(context.seed, "policy", name)

    def emit(event: Mapping[str, object]) -> None:
        if event["kind"] == "note":
            context.note(f"{name}: {event['line']}")

    scratch = context.scratch / POLICIES / name
    scratch.mkdir(parents=True, exist_ok=True)
    return replace(context, seed=seed, scratch=scratch, emit=emit)


@contextmanager
def open_members(
    learning: Sequence[Learning],
    config: SeveralConfig,
    pool: ProblemPool,
    inputs: Mapping[str, Path],
) -> Iterator[list[Member]]:
    """Open for each policy what draws from it and what rewards it.

    Args:
        learning: The policies.
        config: Of the stage.
        pool: The problems, and what is known of them.
        inputs: Of the stage by port; components of the reward ask some of them.

    Yields:
        The policies, ready for the first step.

    """
    members = []
    with ExitStack() as opened:
        for each in learning:
            tools = open_tools(
                TorchEngine(), config.reward, each.policy, each.learner, each.context, inputs=inputs
            )
            bench, ahead = opened.enter_context(tools)
            state = start_state(config, pool, each.learner, bench, ahead, each.context)
            members.append(Member(each.name, each.context.seed, state))
        yield members


def _further(
    name: str, path: Path, first: Policy, config: SeveralConfig, context: StageContext
) -> Policy:
    """A connected policy, which must read and write what the first does."""
    where = f"coevolve.inputs.{POLICIES}.{name}"
    if name.startswith(COPIED):
        raise UserError(
            f"{where}: names that begin with {COPIED} are those of the first policy and its copies;"
            " connect it under another name"
        )
    loaded = load_to_train(path, config.learner, device=context.device)
    check_reads_alike(first, loaded, where=where)
    return loaded
