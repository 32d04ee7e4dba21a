"""From conversations that somebody brings to a policy that answers like them."""

from posttrain.pipeline.recipe import FlowBuilder
from tasks.import_chats import TASK as IMPORT_CHATS
from tasks.import_model import TASK as IMPORT_MODEL
from tasks.pretrain import TASK as PRETRAIN
from tasks.sft import TASK as SFT


def declare(build: FlowBuilder) -> None:
    """Import conversations and a model, and fine-tune the model on them; no verifier is asked.

    Without an `import_model` section a small model is trained on the answers first, to try things.
    """
    if build.has("import_model"):
        base = build.stage("import_model", IMPORT_MODEL)
        chats = build.stage("import_chats", IMPORT_CHATS, policy=base["policy"])
    else:
        chats = build.stage("import_chats", IMPORT_CHATS)
        base = build.stage("pretrain", PRETRAIN, corpus=chats["traces"])
    build.stage("sft", SFT, policy=base["policy"], traces=chats["traces"], heldout=chats["heldout"])
