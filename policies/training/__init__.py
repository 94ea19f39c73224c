"""Training, as both papers' methods do it: the loop in phases, settings and the folder of a run."""
