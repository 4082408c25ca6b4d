"""What `devicefix verify` does in its own process: it starts runs, and judges what they wrote down."""
