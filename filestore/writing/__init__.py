"""What a write, or the fold of pending runs, does to a slot: new files, deletion vectors, runs, and their commit."""
