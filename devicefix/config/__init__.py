"""Read the settings; one table defines every key."""
