"""Chat templates: how a prompt and its answer are written for a model; each kind is one file."""
