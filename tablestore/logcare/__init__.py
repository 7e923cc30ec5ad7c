"""Where a table's log stands, and its care when no writer comes."""
