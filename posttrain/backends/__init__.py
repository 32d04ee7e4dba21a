"""Other people's servers and clusters: LLM endpoints, Ray."""
