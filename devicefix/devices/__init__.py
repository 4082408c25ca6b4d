"""What portable code uses in place of CUDA: the devices of a module, found or newly defined."""
