"""Graphs that other tools write: DOT, node-link JSON, Inductor's buffers."""
