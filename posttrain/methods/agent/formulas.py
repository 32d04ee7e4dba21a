"""The losses of methods in this folder by their papers, apart from the product's own.

A turn is what the policy says at once. Statistics are over all rollouts that the step trains on,
sums over those of one update.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, deviation, mean, whitened


def paid(rows: FormulaRollouts, i: int) -> list[float]:
    """What the environment paid for each turn of a row."""
    return [turn["earned"] for turn in rows.stored[i]["turns"]]


def returns(rewards: list[float], gamma: float) -> list[float]:
    """What a turn and those after it were paid, discounted by turns."""
    found, following = [], 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        found.append(following)
    return found[::-1]


def by_tokens(rows: FormulaRollouts, i: int, turns: list[float]) -> Tensor:
    """The number of its turn for each drawn token of a row."""
    spans = [span for span in rows.stored[i]["spans"] if span["drawn"]]
    per_token = [turns[span["turn"]] for span in spans for _ in range(span["begin"], span["end"])]
    return torch.tensor(per_token, dtype=torch.float64)


def among_like(
    rows: FormulaRollouts,
    numbers: list[list[float]],
    like: Callable[[int, int], object],
    plus: float,
) -> list[list[float]]:
    """(x - mean) / (std + plus) among the turns of a group that are alike; 0 of one by itself."""
    cells: dict[object, list[tuple[int, int]]] = {}
    for i, turns in enumerate(numbers):
        for turn in range(len(turns)):
            cells.setdefault((rows.group[i], like(i, turn)), []).append((i, turn))
    found = [[0.0] * len(turns) for turns in numbers]
    for cell in cells.values():
        group = [numbers[i][turn] for i, turn in cell]
        if max(group) - min(group) < 1e-12:
            continue
        for i, turn in cell:
            found[i][turn] = (numbers[i][turn] - mean(group)) / (deviation(group) + plus)
    return found


def gigpo(rows: FormulaRollouts) -> Tensor:
    """Equations 3, 6, 7, 8 and 9 at ω = 1."""
    sums = [sum(paid(rows, i)) for i in range(len(rows.reward))]
    whole = rows.standardized(plus=1e-6, rewards=sums)
    after = [returns(paid(rows, i), 0.95) for i in range(len(sums))]
    keys = [[turn["key"] for turn in row["turns"]] for row in rows.stored]
    step = among_like(rows, after, lambda i, turn: keys[i][turn], 1e-6)

    def loss(i: int) -> Tensor:
        a = by_tokens(rows, i, [whole[i] + each for each in step[i]])
        return -clipped_gain(rows.ratio(i), a, 0.2, 0.2) + 0.01 * rows.k3(i)

    return rows.over_tokens(loss)


def webagent_r1(rows: FormulaRollouts) -> Tensor:
    """M-GRPO: the mean over episodes of turns of tokens, less k3 by the tokens of an episode."""
    a = rows.standardized()

    def of_row(i: int) -> Tensor:
        loss = -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2)
        spans = [span for span in rows.stored[i]["spans"] if span["drawn"]]
        turns = torch.split(loss, [span["end"] - span["begin"] for span in spans])
        return torch.stack([turn.mean() for turn in turns]).mean() + 0.001 * rows.k3(i).mean()

    return torch.stack([of_row(i) for i in rows.chosen]).mean()


def gae(rewards: list[float], values: list[float], lam: float) -> list[float]:
    """Σ λ^k δ, δ = r + V of the next - V, the last one's next worth nothing."""
    found, ahead, following = [], 0.0, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        ahead = reward + following - value + lam * ahead
        following = value
        found.append(ahead)
    return found[::-1]


def turn_gae(rows: FormulaRollouts) -> Tensor:
    """GAE over turns, the critic read where each begins, λ 0.95, whitened over tokens."""
    per_token = []
    for i in range(len(rows.reward)):
        begins, place = [], 0
        for span in rows.stored[i]["spans"]:
            if span["drawn"]:
                begins.append(place)
                place += span["end"] - span["begin"]
        values = rows.values[i].tolist()
        found = gae(paid(rows, i), [values[begin] for begin in begins], 0.95)
        per_token.append(by_tokens(rows, i, found))
    a = whitened(per_token, less=1)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def dense_turns(rows: FormulaRollouts) -> Tensor:
    """PPO over tokens, each turn paid at its last one, the divergence at each, λ 1, whitened."""
    per_token = []
    for i in range(len(rows.reward)):
        sizes = [span["end"] - span["begin"] for span in rows.stored[i]["spans"] if span["drawn"]]
        rewards = [
            reward * (place == size - 1)
            for reward, size in zip(paid(rows, i), sizes, strict=True)
            for place in range(size)
        ]
        apart = (rows.log_engine[i] - rows.log_ref[i]).tolist()
        paid_here = [pay - 0.01 * far for pay, far in zip(rewards, apart, strict=True)]
        found = gae(paid_here, rows.values[i].tolist(), 1.0)
        per_token.append(torch.tensor(found, dtype=torch.float64))
    a = whitened(per_token, less=1)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def open_agentrl(rows: FormulaRollouts) -> Tensor:
    """GRPO-TCR: DAPO's loss as verl has it, with the longest that of all turns together."""
    buffer = max(1, round(rows.limit / 5))
    excess = [max(0, rows.length(i) - (rows.limit - buffer)) for i in range(len(rows.reward))]
    shaped = [r - min(1.0, over / buffer) for r, over in zip(rows.reward, excess, strict=True)]
    a = rows.standardized(rewards=shaped, plus=1e-6)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28))


def scaling_inter(rows: FormulaRollouts) -> Tensor:
    """GRPO over the tokens of an update, k3 at 0.001; how long an episode may be is no loss."""
    a = rows.standardized(plus=1e-6)
    return rows.over_tokens(
        lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + 0.001 * rows.k3(i)
    )


def igpo(rows: FormulaRollouts) -> Tensor:
    """Gains of turns and the outcome, standardized over all turns of a group, then added up."""
    rewards = []
    for i in range(len(rows.reward)):
        sizes = [span["end"] - span["begin"] for span in rows.stored[i]["spans"] if span["drawn"]]
        tokens = torch.tensor(rows.stored[i]["token_rewards"], dtype=torch.float64)
        rewards.append([float(turn.sum()) for turn in torch.split(tokens, sizes)])
    step = among_like(rows, rewards, lambda *_: 0, 1e-6)
    a = [by_tokens(rows, i, returns(turns, 1.0)) for i, turns in enumerate(step)]
    return rows.over_answers(
        lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + 0.001 * rows.k3(i)
    )


def supo(rows: FormulaRollouts) -> Tensor:
    """Equations 2 and 3: the advantage of episodes, for the tokens of all pieces of ended ones."""
    stored = rows.stored
    places = {(row["group"], row["episode"]): i for i, row in enumerate(stored)}
    wholes: dict[int, list[float]] = {}
    for (group, _), i in places.items():
        wholes.setdefault(group, []).append(rows.reward[i])

    def advantage(i: int) -> float:
        group = wholes[stored[i]["group"]]
        alike = max(group) == min(group)
        return 0.0 if alike else (rows.reward[i] - mean(group)) / deviation(group)

    ended = [i for i in rows.chosen if stored[i]["end"] == "over"]
    gains = [clipped_gain(rows.ratio(i), advantage(i), 0.2, 0.28).sum() for i in ended]
    return -torch.stack(gains).sum() / sum(rows.length(i) for i in ended)


def rstar2_agent(rows: FormulaRollouts) -> Tensor:
    """GRPO over the tokens of what was kept, which is all that the statistics know."""
    a = rows.standardized(plus=1e-6)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28))


def inspo(rows: FormulaRollouts) -> Tensor:
    """GRPO behind whichever instruction a question had: which one is in no loss."""
    a = rows.standardized()
    return rows.over_answers(
        lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + 0.001 * rows.k3(i)
    )


def tool_levels(rows: FormulaRollouts) -> Tensor:
    """GRPO over the tokens of an update, without a divergence; levels are the reward's."""
    a = rows.standardized(plus=1e-6)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def weighed_turns(rows: FormulaRollouts, weights: list[list[float]]) -> Tensor:
    """-1/B Σ_i Σ_t w log π_t, a token's weight that of its turn."""
    losses = [-(by_tokens(rows, i, weights[i]) * rows.log_p[i]).sum() for i in rows.chosen]
    return torch.stack(losses).mean()


def archer(rows: FormulaRollouts) -> Tensor:
    """A = min Q - min V of the utterance that a token is of."""
    a = [
        [min(q) - min(v) for q, v in zip(worth.said, worth.begun, strict=True)]
        for worth in rows.worths
    ]
    return weighed_turns(rows, a)


def digirl(rows: FormulaRollouts) -> Tensor:
    """1 where V(s') - V(s) - 0.05 + r + the return at 0.5 is above 0; V the lower probability."""
    kept = []
    for i, worth in enumerate(rows.worths):
        chance = [min(1 / (1 + math.exp(-logit)) for logit in v) for v in worth.begun]
        paid_here = paid(rows, i)
        found = zip(chance, [*chance[1:], 0.0], paid_here, returns(paid_here, 0.5), strict=True)
        kept.append([float(after - v - 0.05 + r + g > 0) for v, after, r, g in found])
    return weighed_turns(rows, kept)


def webrl(rows: FormulaRollouts) -> Tensor:
    """Equations 6 and 9: (log-ratio of a turn to the phase before - A)², A by the lower V."""
    losses = []
    for i in rows.chosen:
        turns, worth = rows.stored[i]["turns"], rows.worths[i]
        outcome = float(sum(turn["earned"] for turn in turns) > 0)
        chance = [min(1 / (1 + math.exp(-logit)) for logit in v) for v in worth.begun]
        far = rows.log_p[i] - rows.log_old[i]
        spans = [span for span in rows.stored[i]["spans"] if span["drawn"]]
        parts = torch.split(far, [span["end"] - span["begin"] for span in spans])
        for v, after, moved in zip(chance, [*chance[1:], outcome], parts, strict=True):
            a = 0.5 * (after - v) + 0.5 * (outcome - v)
            losses.append((moved.sum() - a) ** 2)
    return torch.stack(losses).sum() / len(rows.chosen)


def option_values(rows: FormulaRollouts) -> Tensor:
    """min(exp(A / 0.3), 20), A by options of three turns."""
    weights = []
    for i, worth in enumerate(rows.worths):
        paid_here, behind = paid(rows, i), worth.begun_behind
        a = []
        for k, v in enumerate(worth.begun):
            ahead = behind[k + 3] if k + 3 < len(behind) else [0.0, 0.0]
            brought = sum(paid_here[k : k + 3])
            a.append(min(brought + 0.95 * each for each in ahead) - mean(v))
        weights.append([min(math.exp(each / 0.3), 20.0) for each in a])
    return weighed_turns(rows, weights)


def implicit_turns(rows: FormulaRollouts) -> Tensor:
    """min(exp(A / 0.3), 20), A = min Q' - V by the first head of V."""
    weights = [
        [
            min(math.exp((min(q) - v[0]) / 0.3), 20.0)
            for q, v in zip(worth.said_behind, worth.begun, strict=True)
        ]
        for worth in rows.worths
    ]
    return weighed_turns(rows, weights)


def arpo(rows: FormulaRollouts) -> Tensor:
    """The soft advantages: GRPO's, for what several episodes share in each of them; dual clip."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        gain = clipped_gain(rows.ratio(i), a[i], 0.2, 0.2)
        return -(gain.clamp(min=3 * a[i]) if a[i] < 0 else gain)

    return rows.over_tokens(loss)


def thor(rows: FormulaRollouts) -> Tensor:
    """GRPO with a dual clip among the episodes of a problem and among the tries of a call."""
    like = [(rows.group[i], row["peers"]) for i, row in enumerate(rows.stored)]
    a = []
    for i, reward in enumerate(rows.reward):
        group = [rows.reward[j] for j, other in enumerate(like) if other == like[i]]
        alike = max(group) == min(group)
        a.append(0.0 if alike else (reward - mean(group)) / (deviation(group) + 1e-6))

    def loss(i: int) -> Tensor:
        gain = clipped_gain(rows.ratio(i), a[i], 0.2, 0.28)
        if a[i] < 0:
            return -gain.clamp(min=3 * a[i])
        return -gain - 0.01 * rows.log_p[i] * (a[i] > 0)

    return rows.over_tokens(loss)
