"""Serve the same prompts with every configuration in one process, block by block, and check the output."""
