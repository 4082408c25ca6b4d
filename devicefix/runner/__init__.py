"""Run the engine on many files, using processes, a cluster, the cache, the baseline and git."""
