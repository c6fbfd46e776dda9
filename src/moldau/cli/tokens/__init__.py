"""`moldau tokens`: delegation tokens, with which jobs log in as a user without his password."""
