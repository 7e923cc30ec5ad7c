"""The table as a Delta log: reading a version, the one commit loop, conflict rules, deletion vectors."""
