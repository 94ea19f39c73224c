"""Graph, formats, problem, schedule, simulator, verifier, bounds and solvers."""
