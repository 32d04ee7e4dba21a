"""A new project of the user's own: what `posttrain init` writes."""
