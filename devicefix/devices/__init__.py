"""Choose the device that a fix uses, and determine which class's method is called."""
