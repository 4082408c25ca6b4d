"""Run the engine over many files: processes, a cluster, the cache, the baseline, git."""
