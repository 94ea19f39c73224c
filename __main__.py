"""`python -m schedopt`: the command."""

from schedopt.cli.main import main

main()
