"""Written and never read back: MLflow, the report."""
