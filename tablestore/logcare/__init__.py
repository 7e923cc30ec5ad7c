"""The offsets of a table's log, and its recovery while there is no writer."""
