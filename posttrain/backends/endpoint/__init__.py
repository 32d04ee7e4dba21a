"""Models behind an OpenAI-compatible endpoint: asked politely, paid for once."""
