"""What else is added to rewards, advantages or loss, one part a file."""
