"""Training, as both papers' methods do it: the loop in phases, its settings, the folder of a run, evolution strategies."""
