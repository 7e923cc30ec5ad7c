"""Real servers that tests start on this machine, on the loopback interface and on free ports."""
