"""The result of a submission as a page, as images and as a PDF."""
