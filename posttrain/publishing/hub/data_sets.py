"""Tables as a data set of the Hugging Face hub: parquet by split, a card, Croissant metadata."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger import StageRun
from posttrain.publishing.hub.croissant import PushedFile, croissant
from posttrain.publishing.hub.origins import files_behind, hub_data, is_generated, runs_behind
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_file

_SIZES = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M")]
_SIZES += [(10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B")]


@dataclass(frozen=True)
class PushedTable:
    """A table of the pipeline that becomes a split."""

    stage: str
    role: str
    path: Path
    digest: str

    @property
    def split(self) -> str:
        """`test` for what is held out of training, else `train`."""
        return "test" if "heldout" in self.role else "train"


def export_data_set(
    tables: Sequence[PushedTable],
    target: Path,
    *,
    name: str,
    stages: Sequence[StageRun],
    license: Mapping[str, str],
    language: Sequence[str] = (),
) -> None:
    """Write tables as a data set that `datasets.load_dataset` and the hub's viewer read.

    Tables of equal columns are splits of one configuration.

    Args:
        tables: One or more, of a recipe.
        target: An empty folder.
        name: How the card calls it.
        stages: The recipe's stage runs, by which it is said what the tables are from.
        license: The fields of the card's head that say it.
        language: By ISO 639.

    Raises:
        UserError: Two tables of equal columns would be one split.

    """
    behind = [run for each in tables for run in runs_behind(stages, each.digest)]
    behind = [run for run in stages if run in behind]
    configs = _configurations(tables)
    files = [_copied(table, config, target) for config, held in configs.items() for table in held]
    head = _head(name, configs, files, behind, license, language)
    (target / "README.md").write_text(
        f"---\n{head}\n---\n\n# {name}\n\n{_text(files, behind)}", encoding="utf-8"
    )
    described = croissant(name, files, behind, license=license.get("license"))
    (target / "croissant.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def _configurations(tables: Sequence[PushedTable]) -> dict[str, list[PushedTable]]:
    """Tables by the name of a configuration, which is the role of its first."""
    import polars as pl

    by_columns: dict[str, list[PushedTable]] = {}
    for table in tables:
        columns = str(dict(pl.read_parquet_schema(table.path)))
        held = by_columns.setdefault(columns, [])
        if table.split in {each.split for each in held}:
            raise UserError(
                f"{table.stage}.{table.role} and {held[0].stage}.{held[0].role} have the same"
                f" columns, and both would be the split {table.split}; push them apart"
            )
        held.append(table)
    return {held[0].role: held for held in by_columns.values()}


def _copied(table: PushedTable, config: str, target: Path) -> PushedFile:
    import polars as pl

    name = f"{config}/{table.split}-00000-of-00001.parquet"
    (target / config).mkdir(exist_ok=True)
    shutil.copyfile(table.path, target / name)
    schema = {key: str(kind) for key, kind in pl.read_parquet_schema(table.path).items()}
    rows = int(pl.scan_parquet(table.path).select(pl.len()).collect().item())
    digest = sha256_of_file(table.path)
    size = table.path.stat().st_size
    return PushedFile(name, config, table.split, digest, size, rows, schema, table.stage)


def _head(
    name: str,
    configs: Mapping[str, Sequence[PushedTable]],
    files: Sequence[PushedFile],
    behind: Sequence[StageRun],
    license: Mapping[str, str],
    language: Sequence[str],
) -> str:
    from huggingface_hub import DatasetCardData

    rows = sum(each.rows for each in files)
    sources = list(dict.fromkeys(each.name for each in hub_data(behind)))
    more: dict[str, Any] = {
        "configs": [
            {
                "config_name": config,
                "default": position == 0,
                "data_files": [
                    {"split": each.split, "path": each.name}
                    for each in files
                    if each.config == config
                ],
            }
            for position, config in enumerate(configs)
        ],
        "tags": ["posttrain", *["synthetic"] * is_generated(behind)],
        **{key: value for key, value in license.items() if key != "license"},
    }
    data = DatasetCardData(
        pretty_name=name,
        language=list(language) or None,
        license=license.get("license"),
        size_categories=[next((label for most, label in _SIZES if rows < most), "n>1T")],
        source_datasets=sources or ["original"],
        **more,
    )
    return str(data.to_yaml())


def _text(files: Sequence[PushedFile], behind: Sequence[StageRun]) -> str:
    lines = [
        "Written from the records of the pipeline that made it; `croissant.json` says the same to"
        " machines, with what each file is derived from.",
        "",
        "| file | rows | columns | made by | sha256 |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{each.name}` | {each.rows:,} | {len(each.columns)} | {each.stage}"
        f" | `{each.sha256[:12]}` |"
        for each in files
    ]
    lines += ["", "Stages behind it: " + ", ".join(f"`{run.stage}`" for run in behind) + "."]
    if outside := [each.name for each in hub_data(behind)] + files_behind(behind):
        lines += ["", "From outside: " + ", ".join(f"`{each}`" for each in outside) + "."]
    return "\n".join(lines) + "\n"
