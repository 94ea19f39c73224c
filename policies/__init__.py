"""Learned methods: a folder for each, what their networks and their training share, and the shipped weights."""
