"""What an answer is worth: verifiers, reward components, and how components become a reward."""
