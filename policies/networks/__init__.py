"""What the networks of both papers share: messages along edges, their files, the shipped weights."""
