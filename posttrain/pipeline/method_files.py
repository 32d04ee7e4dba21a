"""What a method's file says, looked up as a whole before anything runs."""

from collections.abc import Iterable
from pathlib import Path

from posttrain.methods.find import FoundMethod
from posttrain.methods.systems import refuse_unknown_system
from posttrain.pipeline.claim_recipe import values_of_claim
from posttrain.pipeline.recipe_method import sections_of_method
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.stage.errors import UserError


def look_up_methods(
    methods: Iterable[FoundMethod], root: Path
) -> tuple[list[FoundMethod], list[UserError]]:
    """Look up what methods set, of which system they are, and what their claims compare.

    Args:
        methods: Those whose files could be read.
        root: The project.

    Returns:
        Those of whose files all is right, and the first complaint about each other one, which names
        the file that is to be mended, the place in it and the nearest right name.

    """
    tasks = stages_of_flow("flows.post_training", root)
    right, faults = list[FoundMethod](), dict[str, UserError]()
    for found in methods:
        try:
            refuse_unknown_system(found)
            sections_of_method(found.method, tasks)
            for claim in found.method.claims:
                values_of_claim(found.method, claim, seeds=claim.seeds)
        except UserError as fault:
            # Of a method that others are like, or that their arms take, it is said once.
            faults.setdefault(str(fault), fault)
        else:
            right.append(found)
    return right, [*faults.values()]
