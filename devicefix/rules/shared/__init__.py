"""Questions and fixes that several rules share."""
