"""What is asked: a graph, a machine, limits; and its answer, a schedule."""
