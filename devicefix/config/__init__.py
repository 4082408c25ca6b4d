"""Read the settings. One file defines all keys."""
