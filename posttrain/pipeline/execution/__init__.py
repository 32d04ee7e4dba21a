"""Run stages: each in its own process, locally or through Prefect, published by rename."""
