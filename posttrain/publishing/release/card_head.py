"""The head of a release's card, which the Hugging Face hub reads, and results in its own layout."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from posttrain.provenance.key import nested
from posttrain.publishing.hub import origins, results
from posttrain.publishing.hub.licenses import license_metadata
from posttrain.publishing.release.candidate import ReleaseCandidate
from posttrain.publishing.release.chain import Chain

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

_SETTINGS = ("num_samples", "temperature", "max_tokens")


def card_head(candidate: ReleaseCandidate, metrics: results.Estimates) -> "ModelCardData":
    """Write what the hub shows beside a model, finds it by, and ranks it with.

    Args:
        candidate: What becomes a release.
        metrics: Headline figures by name.

    Returns:
        The head; its YAML is what stands between the card's first lines.

    Raises:
        UserError: The license is none of the hub's and has no link. Nothing is signed by then.

    """
    from huggingface_hub import ModelCardData

    config, chain = candidate.config, candidate.chain
    license = license_metadata(config.license, config.license_link, where="release.license")
    made = origins.runs_behind(chain.stages, chain.policy.digest)
    bases = origins.base_models(chain.stages, chain.policy.digest)
    bases = bases or [each for each in [config.base_model] if each]
    merged = origins.is_merged(chain.stages, chain.policy.digest)
    learned = [each.name for each in origins.hub_data(made) if not each.heldout]
    return ModelCardData(
        language=list(config.language) or None,
        license=license.get("license"),
        license_name=license.get("license_name"),
        license_link=license.get("license_link"),
        library_name="transformers",
        pipeline_tag="text-generation",
        base_model=bases or None,
        base_model_relation=("merge" if merged else "finetune") if bases else None,
        datasets=list(dict.fromkeys(learned)) or None,
        tags=_tags(chain),
        model_name=str(candidate.tag),
        eval_results=results.model_index(metrics, evaluated_on(chain)),
    )


def evaluated_on(chain: Chain) -> results.EvaluatedOn:
    """Say what a release's figures were measured on, and when.

    Args:
        chain: The stage runs behind the release.

    Returns:
        Problems, settings, day, and the data sets that the problems are from.

    """
    problems = next(each for each in chain.evaluation.inputs if each.role == "problems")
    sources = origins.hub_data(origins.runs_behind(chain.stages, problems.digest))
    params = nested(chain.evaluation.components.get("params", {}))
    return results.EvaluatedOn(
        problems.digest,
        {name: params[name] for name in _SETTINGS if name in params},
        chain.evaluation.ended,
        [each for each in sources if each.heldout],
    )


def methods_of_chain(chain: Chain) -> list[origins.MethodUsed]:
    """List the published methods that the recipe names for stages of the chain."""
    stages = {run.stage for run in chain.stages}
    recipe = chain.recipe
    sections = {name: said for name, said in recipe.sections.items() if name in stages}
    return origins.methods_used(origins.names_of_methods(sections, recipe.method))


def benchmark_files(
    candidate: ReleaseCandidate, metrics: Mapping[str, Mapping[str, float]]
) -> dict[str, bytes]:
    """Write the result on the benchmark that the recipe names, if it names one."""
    stated = candidate.config.benchmark
    if stated is None:
        return {}
    return results.benchmark_file(
        stated.dataset, stated.task, metrics, evaluated_on(candidate.chain)
    )


def _tags(chain: Chain) -> list[str]:
    trainers = origins.trainers_behind(chain.stages, chain.policy.digest)
    tags: list[Any] = ["posttrain", *trainers]
    if trainers:
        tags.append("generated_from_trainer")
    for method in methods_of_chain(chain):
        tags += [method.name, *(f"arxiv:{paper}" for paper in method.papers)]
    return list(dict.fromkeys(tags))
