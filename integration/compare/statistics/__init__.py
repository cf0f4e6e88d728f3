"""From paired blocks to a verdict: interval on the ratio, several comparisons, repeated looks."""
