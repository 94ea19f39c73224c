"""The subcommands of `schedopt train`: one file per kind of trainer, and what they share."""
