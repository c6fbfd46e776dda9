"""What findings and explanations are drawn from: values in, values out."""
