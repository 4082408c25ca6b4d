"""What a run tells, one format a module."""
