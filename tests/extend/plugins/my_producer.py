"""A producer makes the rollouts of a problem, by as many calls as it likes. In the recipe:

rl:
  producer: {kind: primed, text: "= "}
"""

from dataclasses import replace
from typing import Literal

from posttrain.learning.rl.drawn import as_groups
from posttrain.learning.rl.producers.base import Producer, Production, Workbench


class Primed(Producer):
    """Begin every answer with a given text, which is read and bears no loss."""

    kind: Literal["primed"] = "primed"
    text: str
    """What the policy goes on from."""

    def start(self, bench: Workbench) -> "PrimedProduction":
        return PrimedProduction(self, bench)


class PrimedProduction(Production):
    def __init__(self, config: Primed, bench: Workbench) -> None:
        self.bench = bench
        self.ids = tuple(bench.tokenizer.encode(config.text, add_special_tokens=False))

    def produce(self, problems, prompts, at):
        primed = [replace(each, token_ids=each.token_ids + self.ids) for each in prompts]
        samples = self.bench.engine.sample(primed, at.params)
        return as_groups(samples, problems, primed, first=at.first_group)


PARTS = {"producer": {"primed": Primed}}
