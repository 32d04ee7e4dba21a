"""What an algorithm of reinforcement learning is, told so that it can be compared, hashed and run.

=============== ==================================================================================
config          `Algorithm`: a frozen tree of independent switches, no torch in it; its sections
                are in `advantage_config`, `ratio_config` and `correction_config`
check           `check(algorithm, where=, group_size=, has_reference=, has_critic=, max_tokens=)`:
                refuses what the stage cannot carry out, as a `UserError` with the remedy
identity        `canonical(algorithm)`, `digest(algorithm)`: one spelling, one SHA-256; `switches`
                and `flat`: the same as plain values. `summary`: one line, for people
presets         `PRESETS`: name -> `Preset(algorithm, equation, source, note)`, from the papers
                (`published`, `reinforce_family`) and as others define a name (`frameworks`)
choice          `Chosen`: the type of a config field that takes a preset's name ("grpo"), or a
                mapping of switches that change `default` or the `preset` beside them
credit          `advantages(algorithm, Outcomes(rewards_B, group_B, ...), max_tokens=)` ->
                `Credit(advantages_BT, returns_BT, bears_loss_B)`; over the whole batch
objective       `denominator(algorithm, mask_BT, max_tokens=)`, summed over the whole batch;
                `policy_objective(algorithm, logprobs_BT, batch=PolicyBatch(mask_BT, advantages_BT,
                sampled_logprobs_BT, ...), denominator=, entropy_BT=)` -> `(loss, metrics)`;
                `value_objective(algorithm, values_BT, returns_BT=, old_values_BT=, mask_BT=,
                denominator=)` -> `(loss, metrics)`. Its parts are `surrogate` and `weighting`
=============== ==================================================================================

`credit`, `objective` and their parts import torch; the others do not, so that configs stay cheap.
A switch more or less is a new `format` in `identity`: digests of two formats do not compare.
"""
