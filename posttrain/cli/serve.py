"""`posttrain serve`: a policy behind OpenAI's protocol."""

import sys
from pathlib import Path

import click

from posttrain.cli.options import Documented
from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError


@click.command(cls=Documented)
@click.argument("model", metavar="FOLDER|STAGE.OUTPUT|RELEASE")
@click.option("--recipe", default=".", help="Recipe that STAGE.OUTPUT is of [default: here].")
@click.option("--run", help="Take STAGE.OUTPUT as this run made it, such as latest~1.")
@click.option("--name", help="Call the model so [default: as it is named here].")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port on this machine's loopback; 0 takes a free one (torch alone).",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "torch", "vllm"]),
    default="auto",
    show_default=True,
    help="What draws; auto is vLLM where it is installed.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where torch computes; auto is a GPU where there is one.",
)
def serve(
    model: str,
    recipe: str,
    run: str | None,
    name: str | None,
    port: int,
    engine: str,
    device: str,
) -> None:
    """Serve a policy of yours to any client of OpenAI's API, on this machine alone.

    It answers /v1/models, /v1/completions and /v1/chat/completions at 127.0.0.1: whole or streamed,
    with seeds, stop strings, log-probabilities and token ids. Messages are written by the chat
    template of the policy's tokenizer, as all stages write them. A release is asked first whether
    it still answers as it did.

    vLLM serves where it is installed, for many clients at once. Else torch does, one request after
    the other: greedy answers are those of an evaluation with engine torch, token by token.

    From Python:
      from openai import OpenAI
      client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
      asked = [{"role": "user", "content": "2 + 3 ="}]
      client.chat.completions.create(model="rl.policy", messages=asked)

    Examples:
      posttrain serve rl.policy                     what the recipe here made
      posttrain serve rl.policy --run latest~1      as an earlier run made it
      posttrain serve math-policy@v0.1.0            a release, checked
      posttrain serve ../models/Qwen2.5-0.5B-Instruct --port 8001

    """
    from posttrain.operations.serving import start
    from posttrain.operations.serving.find import FoundPolicy, find_policy

    found = find_policy(model, recipe, _root(), run)
    found = FoundPolicy(name or found.name, found.folder)

    def say(line: str) -> None:
        click.echo(line, err=True)

    if engine == "vllm" or (engine == "auto" and start.has_vllm()):
        sys.exit(start.serve_by_vllm(found, port, say=say))
    start.serve_by_torch(found, port, device=device, say=say)


def _root() -> Path | None:
    try:
        return project_root(Path.cwd())
    except UserError:
        return None
