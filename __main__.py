"""`python -m schedopt`: the command line."""

from .cli.start import main

main()
