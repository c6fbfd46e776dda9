"""`moldau explain`: why things are as they are."""
