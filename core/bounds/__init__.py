"""Bounds that no schedule can beat, and what all orders of one device have in common."""
