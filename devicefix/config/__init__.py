"""Read the settings. One table defines all keys."""
