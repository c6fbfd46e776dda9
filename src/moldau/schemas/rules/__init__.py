"""What is decided about schemas without asking anybody."""
