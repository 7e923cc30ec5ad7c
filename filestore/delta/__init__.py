"""The table as a Delta log: its actions, the state of a version, reading the log, deletion vectors."""
