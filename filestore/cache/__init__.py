"""What is kept of data files on the local disk and in memory, so that look-ups find it without decoding."""
