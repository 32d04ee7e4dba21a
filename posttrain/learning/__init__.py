"""Everything that learns; importable with torch, transformers, pydantic and polars alone."""
