"""`python -m schedopt`: the command line."""

from .cli.main import main

main()
