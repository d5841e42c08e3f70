"""What a compiled program costs."""
