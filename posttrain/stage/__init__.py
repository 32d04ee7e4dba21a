"""What every part may see: configs, kinds of artifacts, the spec of a DAG, a context, errors."""
