"""``python -m tablestore.cli``: the command line without the installed script."""

from tablestore.cli.app import main

main()
