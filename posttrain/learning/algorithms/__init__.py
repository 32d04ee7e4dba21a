"""What an algorithm of reinforcement learning is, told so that it can be compared, hashed and run.

=============== ==================================================================================
config          `Algorithm`: a frozen tree of independent parts and settings, no torch in it
part            `AlgorithmPart`, their base, and `NEEDS`: what they may ask the learner for
advantages      how rewards become advantages, a file each: `group`, `turns`, `returns`, `gae`,
                `egae`, `learned`
turn_values     how values of turns are learned from stored episodes, a file each: `td`, ...
surrogates      how the ratio enters the loss: `clip`, `cispo`, `sapo`, `gmpo`, `squared`, ...
token_weights   factors on the loss of each token: `importance`, `band`, `drift`
regularizers    what is added beside the surrogate: `kl`, `entropy`
batches         the tensors that parts are given and give back
check           `check(algorithm, where=, group_size=, provided=, max_tokens=)`: refuses what a
                stage cannot carry out, as a `UserError` with the remedy
identity        `canonical(config)`, `digest(config)`: one spelling, one SHA-256 of what is not at
                its default, for an algorithm or a whole stage's config; `resolved` and `flat`: all
                fields as plain values
presets         `PRESETS`: name -> `Preset(algorithm, equation, source, note)`, from the files of
                `posttrain.methods`; `AlgorithmConfig`: the type of a field that takes a method's
                name ("grpo"), or a mapping that changes the defaults or the `preset` beside it
objective       `advantages(algorithm, RolloutBatch(rewards_B, group_B, ...), max_tokens=)` over a
                whole generation; `denominator(algorithm, mask_BT, max_tokens=)`, summed over the
                whole batch; `policy_objective(algorithm, logprobs_BT, batch=PolicyBatch(...),
                denominator=, entropy_BT=)` and `algorithm.critic.loss(...)` -> `(loss, metrics)`
=============== ==================================================================================

A part holds its formula and imports torch in the call, so that recipes are parsed without it; only
`objective` imports it at once. What several parts share stands in `maths`.
"""
