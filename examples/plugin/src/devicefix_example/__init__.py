"""An example of a rule for devicefix."""
