"""``theorems explore``: a page in the browser on one data set, whose tokens can be dragged; also as a file."""
