"""What the Hugging Face hub is told: cards, files in its layout, and the upload."""
