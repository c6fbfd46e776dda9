"""`moldau schemas`: what a schema registry holds."""
