"""What the trainers of both papers share: the loop in phases, the folder of a run, evolution strategies."""
