"""What runs where, and how far ahead."""
