"""Figures of a broker: counters, histograms, the history, and how they are written out."""
