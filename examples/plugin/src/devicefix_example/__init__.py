"""A rule for devicefix, as an example."""
