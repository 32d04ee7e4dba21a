"""Ways to make one model of several: each is a part that combines their weights."""
