"""Formulas of post-training as free functions of tensors. Imports torch and nothing else.

Notation, used as suffixes of names:

    _P  problems (one group of rollouts each)     _B  sequences      _T  tokens of a sequence
    _G  rollouts of one problem                   _V  vocabulary     _N  items of any kind

``mask_BT`` is true (or 1) at the tokens that the model produced and that count; what stands at the
other tokens is never read into a result. Advantages are ``[B, T]``, or ``[B, 1]`` where every token
of a sequence has the same. Log-probabilities are natural logarithms, in nats.

A *loss* returns ``(scalar, metrics)`` and is given its ``denominator``, which is a count over the
whole batch. Losses of the parts of a batch therefore add up to the loss of the batch, and so do
their gradients, however the batch is cut into micro-batches or ranks. Metrics are detached means
over the part at hand.

Choices by name are ``Literal`` types with a literal dict of functions beside them.
"""
