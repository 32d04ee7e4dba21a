"""What one resumable checkpoint takes on disk, known before anything is loaded."""


def checkpoint_bytes(
    num_parameters: int,
    *,
    num_trained: int | None = None,
    num_by_muon: int = 0,
    num_copied: int = 0,
    own_critic: bool = False,
    weight_bytes: int = 4,
    state_bytes: int = 4,
) -> int:
    """Count the bytes of the tensors of a checkpoint; plain values are small beside them.

    A model whose weights are all trained by AdamW takes 12 bytes a parameter:

    >>> checkpoint_bytes(50_000_000)
    600000000

    Of an adapter, only what is trained is in it:

    >>> checkpoint_bytes(50_000_000, num_trained=1_000_000)
    12000000

    Args:
        num_parameters: Of the model, tied weights once.
        num_trained: Parameters of the adapters, where only those are trained and saved.
        num_by_muon: Of those that are trained, the ones that Muon steps, which has one state for
            each and not two.
        num_copied: Parameters that further copies hold: what is trained, for `learner.ema_decay`;
            it again, and twice in RL, for `keep: best`; the model, for a reference that moves.
        own_critic: True where RL has a value model with a trunk of its own.
        weight_bytes: Of one number of the weights.
        state_bytes: Of one number of the optimizer's states.

    Returns:
        Bytes of one checkpoint. There are `learner.checkpoints.keep` of them, and one more while
        one is written.

    """
    trained = num_parameters if num_trained is None else num_trained
    states = 2 * trained - num_by_muon
    total = trained * weight_bytes + states * state_bytes + num_copied * weight_bytes
    # The critic's trunk is in float32 with AdamW's two states.
    return total + own_critic * num_parameters * 12
