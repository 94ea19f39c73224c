"""A network that schedules in one pass: it sees a graph once and gives keys, which are decoded once."""
