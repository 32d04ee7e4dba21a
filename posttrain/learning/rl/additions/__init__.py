"""What joins a group beside what was drawn for it: traces, second passes."""
