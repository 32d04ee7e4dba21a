"""Measure prompts."""

import polars as pl

from my_artifact_kind import schema
from posttrain.data.tables import write_table


def run(config, inputs, outputs, context):
    problems = pl.read_parquet(inputs["problems"])
    length = pl.col("prompt").str.len_chars().cast(pl.Int64).alias("length")
    table = problems.select("id", pl.concat_list("id").alias("parents"), length)
    write_table(table, outputs["lengths"], schema())
    return {"lengths/longest": float(table["length"].max())}
