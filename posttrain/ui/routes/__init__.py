"""Pages by what they show; each module has its routes as `pages`."""
