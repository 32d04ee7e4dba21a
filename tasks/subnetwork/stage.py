"""Write a policy anew with a mask of the weights that training may move."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor, nn

from posttrain.learning.models.load import load_policy, save_policy
from posttrain.learning.models.subnetwork import moved_weights, write_subnetwork
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.subnetwork.config import SubnetworkConfig


def run(
    config: SubnetworkConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Make the masks, and save the policy with them."""
    policy = load_policy(inputs["policy"], dtype=None)
    masks = _named(config.names, policy.model)
    if "after" in inputs:
        before, after = (load_policy(inputs[port]).model for port in ("before", "after"))
        moved = moved_weights(
            before,
            after,
            precision=getattr(torch, config.precision),
            tolerance=config.tolerance,
        )
        if {n: m.shape for n, m in moved.items()} != {n: m.shape for n, m in masks.items()}:
            raise UserError(
                "subnetwork: before and after are of another architecture than the policy; take"
                " models of one"
            )
        masks = {name: mask & moved[name] for name, mask in masks.items()}
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    share = sum(counts.values()) / sum(mask.numel() for mask in masks.values())
    if not share:
        raise UserError(
            "subnetwork: no weight may move, as no one that is named moved between before and"
            f" after by more than {config.tolerance:g} in {config.precision}; lower tolerance, or"
            " compare in float32"
        )
    save_policy(policy.model, policy.tokenizer, outputs["policy"])
    write_subnetwork(masks, outputs["policy"])
    report = {"share": share, "weights": counts}
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    context.note(f"{share:.1%} of the weights may move")
    return {"subnetwork/share": share}


def _named(patterns: tuple[str, ...], model: nn.Module) -> dict[str, Tensor]:
    """A mask of each tensor: True throughout where a pattern names it, or where there is none."""
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"subnetwork.names: no tensor is called '{pattern}'; there are {names[0]},"
                f" {names[-1]} and others"
            )
    return {
        name: torch.full(
            tuple(parameter.shape),
            not patterns or any(fnmatchcase(name, pattern) for pattern in patterns),
        )
        for name, parameter in model.named_parameters()
    }
