"""Choose the device that a fix uses, and determine which class a called method belongs to."""
