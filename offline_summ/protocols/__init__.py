"""The ways to ask a judge. Each is plain async code over one example and an engine."""
