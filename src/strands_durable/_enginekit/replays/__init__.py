"""Recorded runs played to an agent: what is played, what the agent then records, and how the two differ."""
