"""Costs of a schedule, and who holds the memory."""
