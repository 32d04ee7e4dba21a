"""Turn prompts into samples. The one place that knows what an inference engine is."""
