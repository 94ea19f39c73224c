"""The question, a graph on a machine with its limits, and the answer, a schedule."""
