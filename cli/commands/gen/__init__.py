"""The subcommands of `schedopt gen`: one file per generator, and what they share."""
