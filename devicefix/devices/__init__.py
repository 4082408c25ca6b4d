"""Choose the device that a fix uses, and decide whose method a call reaches."""
