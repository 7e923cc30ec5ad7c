"""Change data of a write: whether it is written, the images of rows, and the files that contain them."""
