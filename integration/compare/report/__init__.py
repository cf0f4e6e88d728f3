"""Drawing the page: figures as SVG, text as HTML, all in one file."""
