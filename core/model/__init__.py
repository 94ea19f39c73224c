"""What a schedule costs, and who holds the memory."""
