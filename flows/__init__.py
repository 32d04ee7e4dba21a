"""What runs when. Each module declares one DAG in plain Python."""
