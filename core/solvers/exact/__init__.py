"""Constraint programming with OR-Tools' CP-SAT (REGAL A.10)."""
