"""What a row of text teaches, token by token: the losses of supervised fine-tuning, a file each."""
