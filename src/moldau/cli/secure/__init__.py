"""`moldau secure`: makes what a secured cluster needs."""
