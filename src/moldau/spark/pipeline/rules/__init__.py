"""What pipelines decide: values in, values out."""
