"""What every part may see: configs, artifact types, the spec of a DAG, a context, errors."""
