"""What a recipe is told of a server that holds the policy."""

from posttrain.learning.rollouts.engines.kinds.server import ServerEngine
from posttrain.operations.remarks import remarks_on_values
from tasks.probe.config import ProbeConfig


def test_the_plan_says_that_nothing_checks_whose_weights_are_served():
    values = {"kind": "server", "endpoint": {"base_url": "http://127.0.0.1:9/v1", "model": "p"}}
    config = ProbeConfig.parse({"engine": values}, where="probe")
    assert isinstance(config.engine, ServerEngine)
    (said,) = remarks_on_values(config)
    assert said == (
        "engine server: nothing checks that model p at http://127.0.0.1:9/v1 has the weights of the"
        " stage's policy, and what it draws counts as this policy's; serve the very folder that the"
        " stage is given"
    )
