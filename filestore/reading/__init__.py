"""Reading versions: what need not be read, scans, point reads, slots with pending runs, what differs between two."""
