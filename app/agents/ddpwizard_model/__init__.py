"""Parts of the agents that build a user's model in the user's own interpreter (Python >= 3.9, torch alone)."""
