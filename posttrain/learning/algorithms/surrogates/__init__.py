"""How the ratio to the old policy enters the loss, one part a file."""
