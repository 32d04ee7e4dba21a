"""Adapters as peft, vLLM and the Hugging Face hub read them, and adapters from elsewhere."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from posttrain.stage.errors import UserError, first_line

_CONFIG, _WEIGHTS, _FACTS = "adapter_config.json", "adapter_model.safetensors", "base.json"


def is_adapter(folder: Path) -> bool:
    """Tell whether a folder holds an adapter in the layout of peft."""
    return (folder / _CONFIG).is_file()


def export_adapter(
    source: Path,
    target: Path,
    *,
    base: str,
    license: dict[str, str],
    tags: Sequence[str] = (),
) -> None:
    """Write an adapter that names its base, so that other tools find the weights below it.

    Args:
        source: What a stage saved; it names its base by the digest of the weights.
        target: An empty folder. `base.json` keeps the digest beside the name.
        base: The base's name on the hub, or a folder.
        license: The fields of the card's head that say it.
        tags: Further ones for the card.

    Raises:
        UserError: The adapter is no adapter that posttrain saved.

    """
    if not (source / _FACTS).is_file():
        raise UserError(f"{source}: there is no {_FACTS}, so posttrain did not save this adapter")
    config = json.loads((source / _CONFIG).read_text(encoding="utf-8"))
    facts = json.loads((source / _FACTS).read_text(encoding="utf-8"))
    shutil.copyfile(source / _WEIGHTS, target / _WEIGHTS)
    written = {
        _CONFIG: {**config, "base_model_name_or_path": base},
        _FACTS: {**facts, "name": base},
    }
    for name, value in written.items():
        text = json.dumps(value, indent=1, sort_keys=True) + "\n"
        (target / name).write_text(text, encoding="utf-8")
    (target / "README.md").write_text(
        _card(base, str(facts["base"]), config, license, tags), encoding="utf-8"
    )


def merge_adapter(adapter: Path, base: Path, target: Path) -> str:
    """Merge an adapter, from anywhere, into its base: a plain model, which `import_model` takes.

    Args:
        adapter: In the layout of peft, its weights as safetensors.
        base: Folder of the model that it was trained on.
        target: Folder to write the merged model and its tokenizer into.

    Returns:
        What is known of the base, in one sentence.

    Raises:
        UserError: It is no adapter, has weights that are no safetensors, or does not fit the base.

    """
    from posttrain.learning.models.adapters import load_adapter
    from posttrain.learning.models.load import load_policy, save_policy

    if not is_adapter(adapter):
        raise UserError(f"{adapter}: there is no {_CONFIG}; give the folder of an adapter")
    if not (adapter / _WEIGHTS).is_file():
        raise UserError(
            f"{adapter}: there is no {_WEIGHTS}; save the adapter with safetensors, as a pickle"
            " from elsewhere is not opened"
        )
    policy = load_policy(base)
    if (adapter / _FACTS).is_file():
        load_adapter(policy.model, adapter)
        said = "the base has the digest that the adapter was trained on"
    else:
        from peft import PeftModel

        try:
            PeftModel.from_pretrained(policy.model, str(adapter)).merge_and_unload()
        except (ValueError, RuntimeError, KeyError) as error:
            raise UserError(f"{adapter} does not fit {base}: {first_line(error)}") from None
        name = json.loads((adapter / _CONFIG).read_text())["base_model_name_or_path"]
        said = f"the adapter names its base '{name}', and nothing tells whether {base} is that"
    save_policy(policy.model, policy.tokenizer, target)
    return said


def _card(
    base: str, digest: str, config: dict[str, object], license: dict[str, str], tags: Sequence[str]
) -> str:
    from huggingface_hub import ModelCardData

    head = ModelCardData(
        base_model=base,
        base_model_relation="adapter",
        library_name="peft",
        pipeline_tag="text-generation",
        license=license.get("license"),
        license_name=license.get("license_name"),
        license_link=license.get("license_link"),
        tags=["posttrain", "lora", *tags],
    ).to_yaml()
    return f"""---
{head}
---

# Adapter for {base}

Rank {config.get("r")}, alpha {config.get("lora_alpha")}. Trained on weights whose digest, as
posttrain takes it, is `{digest}` (`base.json`).

```python
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("PATH/OF/THIS/FOLDER")
```

```
vllm serve {base} --enable-lora --lora-modules mine=PATH/OF/THIS/FOLDER
```
"""
