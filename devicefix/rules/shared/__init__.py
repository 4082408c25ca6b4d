"""Questions that several rules ask."""
