"""Recorded requests: read, replayed by ``foredraft compare``, and taken from the logs of servers."""
