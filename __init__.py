"""ddpwizard: from a symptom of a distributed PyTorch job to a named cause and a proved fix."""

__version__ = "0.1.0"
