"""Pages by what they show; `registry` lists them."""
