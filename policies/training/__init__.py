"""Training, as both papers' methods do it: the loop in phases, settings, the folder of a run, evolution strategies."""
