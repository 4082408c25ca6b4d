"""Read the settings, whose keys are all defined in one table."""
