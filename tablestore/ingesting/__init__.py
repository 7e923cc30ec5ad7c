"""Debezium topics into tables: what their messages say of columns, what reads them, and where their changes go."""
