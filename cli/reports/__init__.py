"""Tables and remarks that subcommands print."""
