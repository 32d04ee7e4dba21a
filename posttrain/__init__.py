"""posttrain: versioned pipelines for LLM post-training, from prompts to a released policy."""

__version__ = "0.2.0.dev0"
