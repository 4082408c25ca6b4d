"""Choose the device that a fix uses, and determine whose method a call reaches."""
