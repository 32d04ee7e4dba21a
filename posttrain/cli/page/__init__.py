"""The local web app: it looks at everything that a project knows, and writes reviews alone."""
