"""Deployments on Ray: their plan, their file, and the commands that start, show and end them."""
