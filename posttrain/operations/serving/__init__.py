"""A policy behind OpenAI's protocol: what is asked, what is drawn, what is answered."""
