"""Real programs: import them as graphs, apply schedules to them, and measure the savings."""
