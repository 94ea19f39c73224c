"""Learned methods: a folder for each, the common parts of their networks and training, and the shipped weights."""
