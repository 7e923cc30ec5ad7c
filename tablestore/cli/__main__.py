"""Runs the command line without the installed script: ``python -m tablestore.cli``."""

from tablestore.cli.app import main

main()
