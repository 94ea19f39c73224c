"""What a schedule costs, what none can beat, and who holds the memory."""
