"""The rehearsals that ship with posttrain."""

from posttrain.learning.rl.rehearsals.base import Rehearsal
from posttrain.learning.rl.rehearsals.divergence import DivergenceRehearsal
from posttrain.learning.rl.rehearsals.failures import Failures
from posttrain.learning.rl.rehearsals.likelihood import Likelihood
from posttrain.stage.slots import Slot

REHEARSALS = Slot(
    "rehearsal",
    Rehearsal,
    {"likelihood": Likelihood, "divergence": DivergenceRehearsal, "failures": Failures},
    one_of=("token_loss",),
)
