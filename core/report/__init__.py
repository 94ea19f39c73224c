"""Results, explanations, differences, and their tables."""
